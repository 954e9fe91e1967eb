"""What a real server says of its tables after each statement, to compare with the shapes made from its log.

Two witnesses: information_schema, and SHOW CREATE TABLE read by the same reader that reads the log. A third is the
log itself, where a row was inserted: its TABLE_MAP.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pymysql

import replica as library
from protocol.binlog.events import QueryEvent, RowsEvent
from protocol.position import BinlogPosition
from replica.schemas.baseline import BaselineQueries, baseline
from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.logged_statements import LogTraits, statement_of
from replica.schemas.proof import first_difference
from replica.schemas.shape import Key, Shape
from replica.sql.dialect import Dialect
from replica.sql.token_reader import TableName
from tests.server.support.streams import end_of_log
from tests.support.servers import Server


@dataclass
class Snapshot:
    """The server after a statement: the end of its log, and its tables."""

    sql: str
    position: BinlogPosition
    catalog: Catalog
    shows: dict[TableName, str]


@dataclass
class Findings:
    """What came of a comparison: ``problems`` in words, and counts."""

    problems: list[str] = field(default_factory=list)
    statements: int = 0
    shapes: int = 0
    unknown: list[str] = field(default_factory=list)
    lost_keys: int = 0
    proofs: int = 0

    def __str__(self) -> str:
        return (
            f"{self.statements} statements, {self.shapes} shapes compared, {len(self.unknown)} unknown, "
            f"{self.lost_keys} lost keys, {self.proofs} table maps proved, {len(self.problems)} problems"
        )


class DdlRun:
    """Runs statements on a server and remembers what its tables were after each."""

    def __init__(self, server: Server, schemas: Sequence[str], sql_mode: str = "") -> None:
        self.server = server
        self.schemas = list(schemas)
        self.snapshots: list[Snapshot] = []
        self.errors: list[tuple[str | bytes, str]] = []
        self._connection: pymysql.Connection[Any] = server.connect(
            init_command=f"SET sql_mode = '{sql_mode}', SESSION lock_wait_timeout = 10"
        )
        self._connection.select_db(self.schemas[0])
        # What a session's sql_mode says does not change what this one is shown.
        self._witness: pymysql.Connection[Any] = server.connect(init_command="SET sql_mode = ''")
        self.traits = LogTraits(
            server.family == "mariadb",
            server.version,
            bool(self.query("SELECT @@lower_case_table_names")[0][0] != "0"),
            self.query("SELECT @@GLOBAL.explicit_defaults_for_timestamp")[0][0] == "1",
        )
        self.snapshot("the beginning")

    def close(self) -> None:
        self._connection.close()
        self._witness.close()

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        with self._witness.cursor() as cursor:
            cursor.execute(sql)
            rows = cursor.fetchall()
        return [tuple(None if value is None else _text(value) for value in row) for row in rows]

    def run(self, sql: str | bytes) -> bool:
        """Run a statement; False if the server refuses it, which the log then does not have. Bytes are sent as is."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
        except pymysql.err.Error as error:
            self.errors.append((sql, str(error)))
            return False
        return True

    def step(self, sql: str | bytes) -> bool:
        """Run a statement and look at the tables."""
        is_done = self.run(sql)
        if is_done:
            self.snapshot(sql if isinstance(sql, str) else repr(sql))
        return is_done

    def snapshot(self, sql: str) -> None:
        names = ", ".join(f"'{schema}'" for schema in self.schemas)
        queries = BaselineQueries.of(self.traits, f" AND TABLE_SCHEMA IN ({names})")
        schemas = [row for row in self.query(queries.schemas) if row[0] in self.schemas]
        catalog = baseline(
            schemas, self.query(queries.tables), self.query(queries.columns), self.query(queries.keys)
        )
        shows = {table: self._show(table) for table in catalog.tables}
        self.snapshots.append(Snapshot(sql, end_of_log(self.server), catalog, shows))

    def _show(self, table: TableName) -> str:
        quoted = ".".join(f"`{name.replace('`', '``')}`" for name in table)
        return self.query(f"SHOW CREATE TABLE {quoted}")[0][1] or ""

    def logs(self) -> Iterator[Path]:
        """Copies of the log's files, from the first snapshot's on."""
        [(base,)] = self.query("SELECT @@log_bin_basename")
        first, last = self.snapshots[0].position.file, self.snapshots[-1].position.file
        with tempfile.TemporaryDirectory() as folder:
            for name, *_ in self.query("SHOW BINARY LOGS"):
                if name is not None and first <= name <= last:
                    path = Path(folder) / name
                    path.write_bytes(self.server.read_file(f"{Path(base or '').parent}/{name}"))
                    yield path


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def compare(run: DdlRun) -> Findings:
    """Read the run's log, and compare shapes at each snapshot."""
    findings = Findings()
    catalog = Catalog(run.snapshots[0].catalog.tables, run.snapshots[0].catalog.schemas)
    pending = iter(run.snapshots[1:])
    following = next(pending, None)
    for event in tables_and_statements(run):
        while following is not None and place_behind(event) > following.position:
            _compare_all(run, catalog, following, findings)
            following = next(pending, None)
        if isinstance(event, QueryEvent):
            findings.statements += 1
            catalog.apply(statement_of(event, run.traits))
        else:
            _prove(catalog, event, findings)
    while following is not None:
        _compare_all(run, catalog, following, findings)
        following = next(pending, None)
    return findings


def tables_and_statements(run: DdlRun) -> Iterator[QueryEvent | RowsEvent]:
    """The events of statements and rows since the first snapshot."""
    for path in run.logs():
        with library.open_binlog(path) as log:
            for event in log:
                if (
                    isinstance(event, QueryEvent | RowsEvent)
                    and place_behind(event) > run.snapshots[0].position
                ):
                    yield event


def place_behind(event: QueryEvent | RowsEvent) -> BinlogPosition:
    """The end of an event."""
    return BinlogPosition(event.file, event.position + event.header.size)


def _prove(catalog: Catalog, event: RowsEvent, findings: Findings) -> None:
    table = TableName(event.table.schema, event.table.name)
    shape = catalog.get(table)
    if isinstance(shape, Shape):
        findings.proofs += 1
        problem = first_difference(shape, event.table)
        if problem is not None:
            findings.problems.append(f"{table} at {event.position}: {problem}")


def _compare_all(run: DdlRun, catalog: Catalog, snapshot: Snapshot, findings: Findings) -> None:
    tables = {table: shape for table, shape in catalog.tables.items() if table.schema in run.schemas}
    for table in sorted(tables.keys() | snapshot.catalog.tables.keys()):
        known, real = tables.get(table), snapshot.catalog.get(table)
        shown = _shown(run, table, snapshot)
        for problem in _problems(known, real, shown, findings):
            findings.problems.append(f"{table} after {snapshot.sql[:300]!r}: {problem}")
    for schema, charset in snapshot.catalog.schemas.items():
        if schema in run.schemas and catalog.schemas.get(schema) != charset:
            findings.problems.append(f"schema {schema} after {snapshot.sql!r}: {charset}")


def _shown(run: DdlRun, table: TableName, snapshot: Snapshot) -> Shape | Unknown | None:
    text = snapshot.shows.get(table)
    if text is None:
        return None
    charset = snapshot.catalog.schemas.get(table.schema)
    catalog = Catalog(schemas={table.schema: charset})
    dialect = Dialect(run.traits.is_mariadb, run.traits.version, 0, run.traits.folds_names, True)
    catalog.apply(Statement(text, table.schema, dialect, charset))
    return catalog.get(table)


def _problems(
    known: Shape | Unknown | None,
    real: Shape | Unknown | None,
    shown: Shape | Unknown | None,
    findings: Findings,
) -> Iterator[str]:
    if isinstance(known, Unknown) and real is not None:
        findings.unknown.append(known.reason)
        return
    if (known is None) != (real is None):
        if not isinstance(known, Unknown):
            yield f"the history has {known}, the server {real}"
        return
    if not isinstance(known, Shape) or not isinstance(real, Shape):
        return
    findings.shapes += 1
    findings.lost_keys += known.keys is None
    yield from _differences("information_schema", known, real)
    if isinstance(shown, Shape):
        yield from _differences("SHOW CREATE TABLE", known, shown)
    else:
        yield f"SHOW CREATE TABLE is not read: {shown}"


def _differences(witness: str, known: Shape, real: Shape) -> Iterator[str]:
    for ours, theirs in zip(known.columns, real.columns, strict=False):
        unsure = None in (ours.nullable, theirs.nullable)
        if not ours.type:
            # Its character set or a label is not known.
            theirs = replace(theirs, type="", numbers=(), charset=None, labels=())
        if replace(ours, nullable=None) != replace(theirs, nullable=None) or (
            not unsure and ours.nullable != theirs.nullable
        ):
            yield f"{witness} has {theirs}, the history {ours}"
            return
    if len(known.columns) != len(real.columns):
        yield f"{witness} has {len(real.columns)} columns, the history {len(known.columns)}"
    if known.charset is not None and known.charset != real.charset:
        yield f"{witness} has the default {real.charset}, the history {known.charset}"
    is_told = known.is_whole or known.primary_key
    if (
        is_told
        and known.primary_key != real.primary_key
        and not (known.keys is None and known.primary is None)
    ):
        yield f"{witness} has the key {real.primary_key}, the history {known.primary_key}"
    if (
        known.is_whole
        and known.keys is not None
        and real.keys is not None
        and _keys(known.keys) != _keys(real.keys)
    ):
        yield f"{witness} has the keys {_keys(real.keys)}, the history {_keys(known.keys)}"


def _keys(keys: Iterable[Key]) -> set[tuple[object, ...]]:
    """Of unique keys all; of others the first column: servers cut their prefixes, and make some SPATIAL."""
    return {
        (key.name.lower(), key.parts, key.is_hash)
        if key.kind == "unique"
        else (key.name.lower(), key.parts[0][0])
        for key in keys
    }
