"""Events as SQL that repeats their changes (redo) or reverts them (undo): transactions and DDL around ``sql_rows``.

The output is meant for ``mysql --binary-mode`` (or ``mariadb``). Transactions stay whole, and foreign keys are
checked if the source checked them, and so are CHECK constraints. An event that cannot be written as SQL raises an
error with its place, or is left out and counted, as the caller chooses.

Redo writes statements in the order of the log, without CREATE TRIGGER. Undo writes the last row first: all statements
go to a temporary file that is read backwards at the end, and a transaction without its end in the log is not undone.
What the log does not show is not handled: triggers that the target has run again, and rows that a foreign key changed
in cascade are only in the logs of MySQL 9.6 and later. ``sql_versions`` says what becomes of the history of MariaDB's
tables.
"""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Literal

from protocol.binlog.checksum import is_mariadb_version
from protocol.binlog.events import (
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    ExecuteLoadEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    IncidentEvent,
    IntvarEvent,
    LoadEvent,
    MariadbGtidEvent,
    PreGaRowsEvent,
    QueryEvent,
    RandEvent,
    RowsEvent,
    UpdateRowsEvent,
    UserVarEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.query_status import is_unfinished_alter
from protocol.charset import charset_of_collation
from protocol.constants import INTVAR_NAMES, MariadbGtidFlag
from protocol.errors import UnsupportedEventError
from protocol.wire import utf8_bytes

from ..config.table_filter import TableFilter
from ..config.table_names import split_text
from ..sql.ddl import CreateSchema, DropSchema, RenameTable, Unreadable, table_actions
from ..sql.quoting import binary_literal, identifier
from ..sql.statement_kind import sql_mode_of
from ..sql.xa import XA_COMMIT, XA_ROLLBACK, Xid, prepare_statement
from ..transactions.replay import TransactionRestarted
from .sql_rows import RowStatements
from .sql_session import SqlSession
from .sql_spool import BackwardSpool
from .sql_table import unsupported
from .sql_triggers import TRIGGERS, without_triggers
from .sql_values import sql_cells, value_literal
from .sql_versions import Period

OnUnsupported = Literal["raise", "skip"]

_CREATE_TABLE: Final = re.compile(r"\s*CREATE\s+(OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)
# MySQL ends a logged CREATE TABLE ... SELECT with this; sent by a client, it would allow no INSERT after it.
_START_TRANSACTION: Final = "START TRANSACTION"
_FRAMES: Final = ("XA END", XA_COMMIT, XA_ROLLBACK, "SAVEPOINT", "ROLLBACK TO", "RELEASE SAVEPOINT")
# Statements that change no rows: there is nothing to undo.
_WITHOUT_ROWS: Final = re.compile(
    r"\s*(XA\s+END|SAVEPOINT|RELEASE|FLUSH|ANALYZE|OPTIMIZE|REPAIR|GRANT|REVOKE|SET\s+PASSWORD"
    r"|(CREATE|ALTER|DROP|RENAME)\s+USER|(CREATE|DROP)\s+(/\*!\d+\s+)?TEMPORARY)\b",
    re.IGNORECASE,
)


class SqlRenderer:
    """Writes events to ``output`` as SQL, with ``render`` for each and ``finish`` at the end.

    The events' decoder must use ``renderer.cells``. ``flashback`` undoes the events instead. ``generated`` names the
    generated columns by table. With ``with_statements=False`` the log's own statements (DDL) become comments: use it
    with table filters, because a statement does not say which tables it concerns. ``disable_log`` keeps the replay
    out of the target's own binary log. ``wants_table`` are the selected tables, whose statements alone stop an undo.
    ``left_out`` counts the events that ``on_unsupported="skip"`` has left out, ``triggers`` each CREATE TRIGGER.

    ``render`` raises ``SourceConfigurationError`` if the log has no column names, and ``UnsupportedEventError`` for
    an event that cannot be written as SQL.
    """

    def __init__(
        self,
        output: BinaryIO,
        *,
        flashback: bool = False,
        generated: Mapping[str, Collection[str]] | None = None,
        with_statements: bool = True,
        disable_log: bool = False,
        on_unsupported: OnUnsupported = "raise",
        wants_table: TableFilter | None = None,
    ) -> None:
        self.cells = sql_cells()
        self.left_out = 0
        self._on_unsupported = on_unsupported
        session = SqlSession(disable_log)
        self._rows = RowStatements(session, generated)
        self._writer: _Writer = (
            _Undo(output, self._rows, session, wants_table)
            if flashback
            else _Redo(output, self._rows, session, with_statements)
        )

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event, or keep it for ``finish``; ``raw`` and ``position`` are not used."""
        step = _STEPS.get(type(event))
        if step is None:
            return
        try:
            step(self._writer, event)
        except UnsupportedEventError as error:
            if self._on_unsupported == "raise":
                raise
            self.left_out += 1
            self._writer.write(_comment(f"left out: {error}"))

    @property
    def triggers(self) -> int:
        """The number of CREATE TRIGGER statements that became comments."""
        return self._writer.triggers

    def use_columns(
        self, generated: Mapping[str, Collection[str]] | None, periods: Mapping[str, Period]
    ) -> None:
        """Take the generated columns by table, and periods of versioned ones, from here, also those added later."""
        if generated is not None:
            self._rows.generated = generated
        self._rows.periods = periods

    def follow(self, server_version: str) -> None:
        """Note the server's version, for a reader that begins after a file's format description."""
        self._writer.follow(server_version)

    def finish(self) -> None:
        """Write the pending statements, and the end."""
        self._writer.finish()

    def close(self) -> None:
        """Forget the pending statements; for a caller that gives up before ``finish``."""
        self._writer.close()


class _Writer:
    """Base of redo and undo. ``write`` takes one piece of text, which stays whole."""

    def __init__(self, output: BinaryIO, rows: RowStatements, session: SqlSession) -> None:
        self._output = output
        self._rows = rows
        self._session = session
        self._gtid = ""
        self.triggers = 0

    def write(self, text: str) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: nothing is pending."""

    def follow(self, server_version: str) -> None:
        self._rows.is_mariadb = is_mariadb_version(server_version)
        self._session.follow("mariadb" if self._rows.is_mariadb else "mysql", server_version)

    def format_description(self, event: FormatDescriptionEvent) -> None:
        self.follow(event.server_version)

    def restart(self) -> None:
        """Roll back the part of the open transaction that was written."""

    def gtid(self, event: AnonymousGtidEvent) -> None:
        self._gtid = str(event.gtid) if isinstance(event, GtidEvent) else ""

    def mariadb_gtid(self, event: MariadbGtidEvent) -> None:
        self._gtid = str(event.gtid)
        if event.is_standalone:
            return
        xid = event.xid if event.gtid_flags & MariadbGtidFlag.PREPARED_XA else None
        # With sql_mode=ORACLE, BEGIN would begin a block.
        self.begin(event, "START TRANSACTION" if xid is None else f"XA START {Xid(*xid)}")

    def query(self, event: QueryEvent) -> None:
        sql = event.sql
        if sql == "BEGIN" or sql.startswith("XA START"):
            self.begin(event, sql)
        elif sql == "COMMIT":
            self.commit(event)
        elif not is_unfinished_alter(event.status_variables):
            self.statement(event)

    def begin(self, event: Event, sql: str) -> None:
        raise NotImplementedError

    def commit(self, event: Event) -> None:
        raise NotImplementedError

    def statement(self, event: QueryEvent) -> None:
        raise NotImplementedError

    def statement_setting(self, sql: str) -> None:
        """Write a setting that the next statement of the log needs."""

    def rows(self, event: RowsEvent) -> None:
        raise NotImplementedError

    def xa_prepare(self, event: XaPrepareEvent) -> None:
        raise NotImplementedError

    def refuse(self, event: Event) -> None:
        raise unsupported(event, f"{_REFUSED[type(event)]} cannot be written as SQL")

    def _place(self, event: Event) -> str:
        moment = datetime.fromtimestamp(event.header.timestamp, UTC)
        return f"{event.file}:{event.position}  {moment:%Y-%m-%d %H:%M:%S} UTC  {self._gtid}"

    def _around(self, event: RowsEvent) -> tuple[str, str]:
        return self._session.around(event.rows_flags, self._rows.needs_lenient_mode(event))


class _Redo(_Writer):
    """Writes each event at once."""

    def __init__(
        self, output: BinaryIO, rows: RowStatements, session: SqlSession, with_statements: bool
    ) -> None:
        super().__init__(output, rows, session)
        self._with_statements = with_statements
        self._is_open = False
        self._pending: tuple[Event, str] | None = None  # a transaction with nothing written yet
        self.write(
            "-- The changes of a binary log, to repeat them with: mysql --binary-mode\n"
            + TRIGGERS
            + session.begin()
        )

    def write(self, text: str) -> None:
        self._output.write(utf8_bytes(text))

    def begin(self, event: Event, sql: str) -> None:
        # A transaction that is still open was lost in a crash of the source.
        self._end("ROLLBACK")
        self._pending = event, sql

    def _open(self) -> None:
        if self._pending is not None:
            event, sql = self._pending
            time = self._session.time(event.header.timestamp)
            self.write(f"{_comment(self._place(event))}{time}{sql};\n")
            self._pending, self._is_open = None, True

    def commit(self, event: Event) -> None:
        self._end("COMMIT")

    def _end(self, sql: str) -> None:
        if self._is_open:
            self.write(f"{sql};\n")
        self._pending, self._is_open = None, False

    def statement(self, event: QueryEvent) -> None:
        if event.sql == "ROLLBACK":
            self._end("ROLLBACK")
        elif event.sql.startswith(_FRAMES):
            self._open()
            self.write(f"{event.sql};\n")
        elif not self._with_statements:
            self.write(_comment(f"left out, because its tables are not known: {event.sql}"))
        else:
            self._open()
            self._write_statement(event)

    def _write_statement(self, event: QueryEvent) -> None:
        if not self._is_open:
            self.write(_comment(self._place(event)))
        if event.error_code:
            self.write(_comment(f"on the source this statement ended with error {event.error_code}"))
        sql, is_trigger = without_triggers(event.sql)
        if is_trigger:
            self.triggers += 1
            self.write(sql)
            return
        is_create = _CREATE_TABLE.match(sql) is not None
        sql = _without_start(sql) if is_create else sql
        self._output.writelines(self._session.statement(event, sql))
        if is_create and self._is_open:
            # CREATE TABLE has committed; rows follow.
            self.write("START TRANSACTION;\n")

    def statement_setting(self, sql: str) -> None:
        if self._with_statements:
            self._open()
            self.write(sql)

    def rows(self, event: RowsEvent) -> None:
        if not self._is_open and self._pending is None:
            # The log begins inside a transaction.
            self.begin(event, "BEGIN")
        before, after = self._around(event)
        self._open()
        self.write(self._session.rows() + before)
        self._output.writelines(map(utf8_bytes, self._rows.redo(event)))
        self.write(after)

    def xa_prepare(self, event: XaPrepareEvent) -> None:
        xid = Xid(event.format_id, event.gtrid, event.bqual)
        self._end(prepare_statement(xid, event.one_phase))

    def restart(self) -> None:
        self._end("ROLLBACK")

    def finish(self) -> None:
        if self._is_open:
            self.write(_comment("the end of this transaction is not in the log"))
        self._end("ROLLBACK")


class _Undo(_Writer):
    """Keeps the statements that undo each event, and writes them in reverse order at the end."""

    def __init__(
        self, output: BinaryIO, rows: RowStatements, session: SqlSession, wants_table: TableFilter | None
    ) -> None:
        super().__init__(output, rows, session)
        self._wants_table = wants_table
        self._spool = BackwardSpool()
        # Where the open transaction begins in the spool, and where its statements begin.
        self._begin: int | None = None
        self._content = 0

    def write(self, text: str) -> None:
        self._spool.append(utf8_bytes(text))

    def format_description(self, event: FormatDescriptionEvent) -> None:
        super().format_description(event)
        # A transaction that the previous file left open was lost in a crash of its server.
        self._drop()

    def begin(self, event: Event, sql: str) -> None:
        self._drop()
        self._begin = self._spool.size
        self.write("COMMIT;\n")
        self._content = self._spool.size

    def commit(self, event: Event) -> None:
        if self._spool.size == self._content:
            self._drop()
        elif self._begin is not None:
            self.write(f"{_comment(f'before {self._place(event)}')}BEGIN;\n")
        self._begin = None

    def _drop(self) -> None:
        """Forget a transaction whose end is not in the log."""
        if self._begin is not None:
            self._spool.truncate(self._begin)
        self._begin = None

    def statement(self, event: QueryEvent) -> None:
        if _WITHOUT_ROWS.match(event.sql):
            return
        shown = " ".join(event.sql[:60].split())
        if self._wants_table is not None and _is_about_others(event, self._wants_table):
            self.write(_comment(f"not undone, because it is about other tables: {shown}"))
            return
        raise unsupported(
            event,
            f"{shown!r} cannot be undone from the log: undo the changes after it, then the changes before it "
            "(--start, --stop), or leave it out (--force)",
        )

    def rows(self, event: RowsEvent) -> None:
        if self._begin is None:
            # The log begins inside a transaction.
            self.begin(event, "BEGIN")
        before, after = self._around(event)
        undo = "".join(self._rows.undo(event))
        if undo:
            self.write(before + undo + after)

    def xa_prepare(self, event: XaPrepareEvent) -> None:
        if not event.one_phase:
            self._drop()
            raise unsupported(
                event, "a prepared XA transaction cannot be undone: it may have been committed or rolled back"
            )
        self.commit(event)

    def finish(self) -> None:
        head = (
            "-- The changes of a binary log, undone, the last first, with: mysql --binary-mode\n"
            + TRIGGERS
            + self._session.begin()
        )
        if self._begin is not None:
            head += _comment("not undone: the last transaction, because its end is not in the log")
            self._drop()
        self._output.write(head.encode())
        self._spool.write_backwards(self._output)

    def close(self) -> None:
        self._spool.close()


def _is_about_others(event: QueryEvent, wants_table: TableFilter) -> bool:
    """Whether the statement is DDL of tables that are not selected. False if its tables cannot be read from it."""
    names: set[str] = set()
    schemas: set[str] = set()
    is_read = False
    for action in table_actions(event.sql, event.schema, sql_mode=sql_mode_of(event)):
        is_read = True
        match action:
            case Unreadable():
                return False
            case CreateSchema():
                pass  # it changes no rows
            case DropSchema():
                schemas.add(action.schema)
            case RenameTable():
                names |= {action.table, action.new_table}
            case _:
                names.add(action.table)
    # With lower_case_table_names the statement may have capitals that the table's name lacks.
    found = [name for one in names for name in (one, one.lower())]
    if any(wants_table(*split_text(name)) for name in found):
        return False
    if any(wants_table.may_want_tables_of(name) for one in schemas for name in (one, one.lower())):
        return False
    return is_read


def _without_start(sql: str) -> str:
    """CREATE TABLE without START TRANSACTION at its end. An expression took quadratic time for many spaces."""
    create = sql.rstrip().removesuffix(_START_TRANSACTION)
    return create.rstrip() if create[-1:].isspace() else sql


def _comment(text: str) -> str:
    return f"-- {' '.join(text.split())}\n"


def _intvar(writer: _Writer, event: IntvarEvent) -> None:
    name = INTVAR_NAMES.get(event.variable, "LAST_INSERT_ID")
    writer.statement_setting(f"SET {name}={event.value};\n")


def _rand(writer: _Writer, event: RandEvent) -> None:
    writer.statement_setting(f"SET @@rand_seed1={event.seed1}, @@rand_seed2={event.seed2};\n")


def _user_var(writer: _Writer, event: UserVarEvent) -> None:
    value = "NULL" if event.value is None else value_literal(event.value)
    if isinstance(event.value, bytes):
        charset = charset_of_collation(event.collation, mariadb=True)
        value = f"_{charset.name if charset else 'binary'} {binary_literal(event.value)}"
    writer.statement_setting(f"SET @{identifier(event.name)} := {value};\n")


# LOAD DATA's file is logged in events of its own; the statement alone cannot be run.
_REFUSED: Final[Mapping[type[Event], str]] = MappingProxyType(
    {
        LoadEvent: "LOAD DATA in statement format",
        ExecuteLoadEvent: "LOAD DATA in statement format",
        ExecuteLoadQueryEvent: "LOAD DATA in statement format",
        IncidentEvent: "an incident (events are missing from the log)",
        PreGaRowsEvent: "a row change of MySQL before 5.1.18",
    }
)
_Step = Callable[[_Writer, Any], None]
_STEPS: Final[Mapping[type[Event], _Step]] = MappingProxyType(
    {
        FormatDescriptionEvent: lambda writer, event: writer.format_description(event),
        AnonymousGtidEvent: lambda writer, event: writer.gtid(event),
        GtidEvent: lambda writer, event: writer.gtid(event),
        MariadbGtidEvent: lambda writer, event: writer.mariadb_gtid(event),
        QueryEvent: lambda writer, event: writer.query(event),
        IntvarEvent: _intvar,
        RandEvent: _rand,
        UserVarEvent: _user_var,
        **dict.fromkeys(
            (WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent), lambda writer, event: writer.rows(event)
        ),
        XidEvent: lambda writer, event: writer.commit(event),
        XaPrepareEvent: lambda writer, event: writer.xa_prepare(event),
        TransactionRestarted: lambda writer, event: writer.restart(),
        **dict.fromkeys(_REFUSED, lambda writer, event: writer.refuse(event)),
    }
)
