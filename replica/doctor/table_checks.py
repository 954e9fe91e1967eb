"""The doctor's checks of tables: primary keys, and what the log lacks: cascades and generated columns."""

from collections.abc import Iterator

from .facts import Facts
from .finding import Finding, listed, option_file, sql, stream_option


def check_primary_keys(facts: Facts) -> Iterator[Finding]:
    """Tables without a primary key: a consumer cannot tell their rows apart."""
    name = "primary keys"
    if facts.tables is None:
        message = "the source did not list its tables in time: name the tables that the stream needs"
        yield Finding(name, "warning", message, stream_option("tables=SCHEMA.*"))
        return
    keyless = facts.tables.keyless
    if not keyless:
        yield Finding(name, "ok", "every selected table that the user can see has one")
        return
    has_invisible = facts.version >= ((10, 3) if facts.is_mariadb else (8, 0, 23))
    statements = []
    for table in keyless:
        if table.counter:
            statements.append(f"ALTER TABLE {table.name} ADD PRIMARY KEY ({table.counter})")
            continue
        column = next(name for name in _column_names() if name not in table.columns)
        hidden = " INVISIBLE" if has_invisible else ""
        statements.append(
            f"ALTER TABLE {table.name} ADD COLUMN {column} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT{hidden} "
            "PRIMARY KEY"
        )
    yield Finding(
        name,
        "warning",
        f"{listed([table.name for table in keyless])}: without a primary key a consumer cannot tell which row "
        "changed",
        sql(*statements),
    )


def _column_names() -> Iterator[str]:
    yield "`id`"
    number = 1
    while True:
        yield f"`id_{number}`"
        number += 1


def check_cascades(facts: Facts) -> Iterator[Finding]:
    """Foreign keys that cascade: InnoDB changes the rows below the level that is logged, so the log lacks them."""
    name = "foreign keys"
    native = facts.variable("innodb_native_foreign_keys")
    if native is not None and native.upper() in ("OFF", "0"):
        yield Finding(name, "ok", "cascades of foreign keys are logged")
        return
    if facts.tables is None:
        return
    cascades = facts.tables.cascades
    if not cascades:
        yield Finding(name, "ok", "no selected table that the user can see has one that cascades")
        return
    named = [f"{cascade.table} ({cascade.name} {cascade.rules})" for cascade in cascades]
    remedies = (
        option_file("innodb_native_foreign_keys = OFF")
        if native is not None
        else tuple(
            remedy
            for cascade in cascades
            for remedy in sql(
                f"ALTER TABLE {cascade.table} DROP FOREIGN KEY {cascade.name}",
                f"ALTER TABLE {cascade.table} ADD CONSTRAINT {cascade.name} {cascade.key}",
            )
        )
    )
    yield Finding(
        name,
        "warning",
        f"{listed(named)}: rows that a foreign key changes are not in the log, and a copy of the tables "
        "(start=snapshot) keeps them as it has read them -- have the application change them, and the foreign key "
        "only reject",
        remedies,
    )


def check_generated_columns(facts: Facts) -> Iterator[Finding]:
    """Generated columns, of which MariaDB 11.8.9 logs the values of inserts alone (MDEV-40057)."""
    if facts.tables is None or not facts.tables.unlogged:
        return
    yield Finding(
        "generated columns",
        "ok",
        f"{listed(facts.tables.unlogged)}: this version logs their values in inserts alone, whatever "
        "binlog_row_image is; updates and deletes have replica.ABSENT -- compute them from the other columns",
    )
