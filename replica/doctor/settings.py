"""The source's settings that a stream depends on, as a table: the good values, and what goes wrong with others."""

from collections.abc import Iterator
from typing import Final

from protocol.records import record

from .facts import Facts
from .finding import Finding, Remedy, State, option_file, sql


@record(frozen=True, slots=True)
class Setting:
    """A global variable of the source, by any of its ``names``. The first value of ``good`` is the recommended one.

    ``otherwise`` says what goes wrong with any other value, or what it means (``state`` ok). ``needs_restart``: the
    variable cannot be changed while the source runs. If the source does not have the variable, the finding is
    ``missing``; none if that is empty.
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
        "rows lack columns: values that the source does not log are replica.ABSENT, even if a consumer needs them; "
        "MariaDB logs a REPLACE of an existing row without the columns that it sets to their defaults",
        missing="this version always logs whole rows",
    ),
    Setting(
        ("binlog_row_metadata",),
        ("FULL",),
        "ok",
        "the log has no column names: a stream reads the tables when it is opened (SELECT), and follows the log's "
        "DDL; keep its schema history across restarts (schemas=, or a FileCheckpointStore)",
        missing="this version logs no column names, signs or character sets: a stream reads the tables when it is "
        "opened (SELECT), and follows the log's DDL",
    ),
    Setting(
        ("binlog_row_value_options",),
        ("",),
        "warning",
        "JSON columns are logged as differences, from which the stream gets their values only if binlog_row_image is "
        "FULL",
    ),
    Setting(
        ("binlog_checksum",),
        ("CRC32",),
        "warning",
        "events have no checksum: damage on disk or in the network goes unnoticed",
    ),
    Setting(
        ("sync_binlog",),
        ("1",),
        "warning",
        "a power failure takes the end of the source's log away: a stream that has read it cannot resume "
        "(SourceChangedError)",
    ),
    Setting(
        ("innodb_flush_log_at_trx_commit",),
        ("1",),
        "warning",
        "a power failure takes transactions away that are in the source's log and that the stream has delivered",
    ),
    Setting(
        ("binlog_error_action", "binlogging_impossible_mode"),
        ("ABORT_SERVER",),
        "warning",
        "if the source cannot write its log, as on a full disk, it goes on without one: the stream misses changes",
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


def check_settings(facts: Facts) -> Iterator[Finding]:
    """One finding for each setting that the source has."""
    for setting in SETTINGS:
        name = setting.names[0]
        value = facts.variable(*setting.names)
        if value is None:
            if setting.missing:
                yield Finding(name, "ok", setting.missing)
        elif value.upper() in setting.good:
            yield Finding(name, "ok", value or "not set")
        else:
            if setting.state == "ok":
                yield Finding(name, "ok", f"{value} -- {setting.otherwise}")
                continue
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
    """Set a variable now, and keep it set after a restart."""
    written = value if value.isdecimal() else f"'{value}'"
    if not facts.is_mariadb and facts.version >= (8,):
        return sql(f"SET PERSIST {name} = {written}")
    return (*sql(f"SET GLOBAL {name} = {written}"), Remedy("option file", f"{name} = {value}"))
