"""The doctor's checks of tables: primary keys, and foreign keys that change rows unseen."""

from collections.abc import Iterator

from .facts import Facts
from .finding import Finding, listed, option_file, sql, stream_option


def check_primary_keys(facts: Facts) -> Iterator[Finding]:
    """Tables without a primary key, whose rows a consumer cannot tell apart."""
    name = "primary keys"
    if facts.tables is None:
        message = "the source did not list its tables in time: give the ones that are wanted"
        yield Finding(name, "warning", message, stream_option("tables=SCHEMA.*"))
        return
    keyless = facts.tables.keyless
    if not keyless:
        yield Finding(name, "ok", "all tables that are selected and can be seen have one")
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
    """Foreign keys that change rows without a word in the log: InnoDB does it below what is logged."""
    name = "foreign keys"
    native = facts.variable("innodb_native_foreign_keys")
    if native is not None and native.upper() in ("OFF", "0"):
        yield Finding(name, "ok", "what foreign keys cascade is logged")
        return
    if facts.tables is None:
        return
    cascades = facts.tables.cascades
    if not cascades:
        yield Finding(name, "ok", "none that cascades on tables that are selected and can be seen")
        return
    told = [f"{cascade.table} ({cascade.name} {cascade.rules})" for cascade in cascades]
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
        f"{listed(told)}: rows that a foreign key changes are not in the log -- let the application change them "
        "itself, and the key only forbid",
        remedies,
    )
