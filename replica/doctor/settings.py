"""The source's settings that a stream depends on, as a table: which values are fine, and what happens with others."""

from collections.abc import Iterator
from typing import Final

from protocol.records import record

from .facts import Facts
from .finding import Finding, Remedy, State, option_file, sql


@record(frozen=True, slots=True)
class Setting:
    """A variable of the source. The first value of ``good`` is what it should be set to.

    ``needs_restart``: it cannot be changed while the source runs. A source that does not know the variable has no
    finding, but for ``missing``.
    """

    names: tuple[str, ...]
    good: tuple[str, ...]
    state: State
    otherwise: str
    needs_restart: bool = False
    missing: str = ""


SETTINGS: Final = (
    Setting(
        ("log_bin",),
        ("ON", "1"),
        "failure",
        "the source writes no binary log: there is nothing to stream",
        needs_restart=True,
    ),
    Setting(
        ("binlog_format",),
        ("ROW",),
        "failure",
        "statements are logged instead of the rows that they change",
    ),
    Setting(
        ("binlog_row_image",),
        ("FULL",),
        "warning",
        "columns are left out of the rows: they are replica.ABSENT, also where a consumer wants to know them",
        missing="this version logs whole rows always",
    ),
    Setting(
        ("binlog_row_metadata",),
        ("FULL",),
        "warning",
        "the log has no column names: they are looked up in information_schema as they are now, and a table that has "
        "been altered since ends the stream with SchemaMismatchError",
        missing="this version logs no column names: they are looked up in information_schema (SELECT)",
    ),
    Setting(
        ("binlog_row_value_options",),
        ("",),
        "warning",
        "JSON columns are logged as differences: with a row image other than FULL they cannot be put together",
    ),
    Setting(
        ("binlog_checksum",),
        ("CRC32",),
        "warning",
        "bits that flip on the disk or the network are not noticed",
    ),
    Setting(
        ("sync_binlog",),
        ("1",),
        "warning",
        "a source that loses power loses the end of its log: the stream may have had it, and cannot go on "
        "(SourceChangedError)",
    ),
    Setting(
        ("innodb_flush_log_at_trx_commit",),
        ("1",),
        "warning",
        "a source that loses power loses transactions that it has logged, and the stream has had",
    ),
    Setting(
        ("binlog_error_action", "binlogging_impossible_mode"),
        ("ABORT_SERVER",),
        "warning",
        "when the log cannot be written, such as on a full disk, the source goes on without it, and changes are lost",
    ),
    Setting(
        ("binlog_legacy_event_pos",),
        ("OFF", "ON"),
        "ok",
        "",
    ),
    Setting(
        ("encrypt_binlog", "binlog_encryption"),
        ("OFF", "ON"),
        "ok",
        "",
    ),
)
_TEXTS: Final = ("binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_row_value_options")


def check_settings(facts: Facts) -> Iterator[Finding]:
    """One finding for each row of the table that the source knows of."""
    for setting in SETTINGS:
        name = setting.names[0]
        value = facts.variable(*setting.names)
        if value is None:
            if setting.missing:
                yield Finding(name, "ok", setting.missing)
        elif value.upper() in setting.good:
            yield Finding(name, "ok", value or "not set")
        else:
            known = next(name for name in setting.names if name in facts.variables)
            yield Finding(
                name,
                setting.state,
                f"{value or 'empty'} -- {setting.otherwise}",
                option_file("log_bin = binlog", "server_id = 1")
                if setting.needs_restart
                else set_variable(facts, known, setting.good[0]),
            )


def set_variable(facts: Facts, name: str, value: str) -> tuple[Remedy, ...]:
    """Set a variable now, and for the time after the next restart."""
    written = value if value.isdecimal() else f"'{value}'"
    if not facts.is_mariadb and facts.version >= (8,):
        return sql(f"SET PERSIST {name} = {written}")
    return (*sql(f"SET GLOBAL {name} = {written}"), Remedy("option file", f"{name} = {value}"))
