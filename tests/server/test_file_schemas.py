"""Files of servers at their defaults, without column names in the log, read with the tables of one place of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import replica
from protocol.binlog.events import QueryEvent, WriteRowsEvent
from protocol.errors import ConfigurationError, SchemaMismatchError
from protocol.position import BinlogPosition
from replica import SchemaChangeEvent
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory
from tests.server.support.schema_oracle import DdlRun
from tests.support.servers import Server

STATEMENTS = [
    "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, a VARCHAR(9) CHARACTER SET latin1, e ENUM('x', 'y'))",
    "ALTER TABLE t ADD b BIGINT UNSIGNED AFTER id",
    "ALTER TABLE t CHANGE a c VARCHAR(9) CHARACTER SET latin1",
    "RENAME TABLE t TO u",
    "CREATE TABLE t (id INT UNSIGNED, n SMALLINT UNSIGNED)",
    "ALTER TABLE u ADD f DATE FIRST, MODIFY e ENUM('y', 'x', 'z') CHARACTER SET latin1",
    "ALTER TABLE u DROP f",
]
FIRST_ID = 4_000_000_000
ROW: dict[str, object] = {"b": 2**64 - 1, "n": 65_535, "a": "é", "c": "é", "e": "x", "f": None}


@dataclass
class Lines:
    """A store."""

    lines: list[str]

    def load(self) -> list[str]:
        return self.lines


@dataclass
class Recorded:
    """The files of a log, and its rows under the names that their table had."""

    run: DdlRun
    folder: Path
    rows: list[dict[str, object]]

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.0*"))

    def lines(self, place: int) -> list[str]:
        """The history that begins and ends behind a statement."""
        snapshot = self.run.snapshots[place]
        return list(SchemaHistory("source", snapshot.position, snapshot.catalog).to_lines())

    def store(self, place: int) -> Path:
        path = self.folder / "shop.schemas"
        path.write_text("".join(f"{line}\n" for line in self.lines(place)))
        return path


def columns_of(shape: object) -> tuple[str, ...]:
    assert isinstance(shape, Shape)
    return tuple(column.name for column in shape.columns)


@pytest.fixture
def recorded(server: Server, schema: str, tmp_path: Path) -> Iterator[Recorded]:
    server.query("FLUSH BINARY LOGS")
    run = DdlRun(server, [schema])
    run.run("SET NAMES utf8mb4")
    if server.name == "mariadb:10.11":
        # Each ALTER is logged twice. 11.8 has the default here.
        run.run("SET SESSION binlog_alter_two_phase = 1")
    rows: list[dict[str, object]] = []
    for number, sql in enumerate(STATEMENTS):
        if number == 4:
            server.query("FLUSH BINARY LOGS")
        assert run.step(sql), run.errors
        for table, shape in sorted(run.snapshots[-1].catalog.tables.items()):
            row = {name: ROW.get(name, FIRST_ID + len(rows)) for name in columns_of(shape)}
            values = ", ".join("NULL" if value is None else repr(value) for value in row.values())
            assert run.run(f"INSERT INTO {table.name} VALUES ({values})"), run.errors
            rows.append(row)
    for path in run.logs():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    yield Recorded(run, tmp_path, rows)
    run.close()


def rows_of(log: replica.BinlogFile) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for event in log:
        if isinstance(event, WriteRowsEvent):
            assert event.table.names_from == "history"
            found += [dict(zip(event.table.column_names, row, strict=True)) for row in event.rows]
    return found


def test_the_tables_of_the_beginning(recorded: Recorded) -> None:
    with replica.open_binlog(recorded.files, schemas=Lines(recorded.lines(0))) as log:
        assert rows_of(log) == recorded.rows
    with replica.open_binlog(recorded.files, schema=recorded.store(0)) as log:
        assert rows_of(log) == recorded.rows


def test_changes_of_tables_are_events(recorded: Recorded) -> None:
    """As in a stream, behind each statement; only for whoever gives the store."""
    schema = recorded.run.schemas[0]
    with replica.open_binlog(recorded.files, schemas=Lines(recorded.lines(0))) as log:
        events = list(log)
    changes = [event for event in events if isinstance(event, SchemaChangeEvent)]
    names = [(event.name, names_of(event.before), names_of(event.after)) for event in changes]
    assert names == [
        ("t", None, ("id", "a", "e")),
        ("t", ("id", "a", "e"), ("id", "b", "a", "e")),
        ("t", ("id", "b", "a", "e"), ("id", "b", "c", "e")),
        ("t", ("id", "b", "c", "e"), None),
        ("u", None, ("id", "b", "c", "e")),
        ("t", None, ("id", "n")),
        ("u", ("id", "b", "c", "e"), ("f", "id", "b", "c", "e")),
        ("u", ("f", "id", "b", "c", "e"), ("id", "b", "c", "e")),
    ]
    assert changes[3].renamed_to == f"{schema}.u"
    for change in changes:
        number = next(number for number, event in enumerate(events) if event is change)
        before = [event for event in events[:number] if not isinstance(event, SchemaChangeEvent)][-1]
        assert isinstance(before, QueryEvent)
        assert (before.position, before.sql) == (change.position, change.sql)
    lines = Lines(recorded.lines(0))
    with replica.open_binlog(
        recorded.files, schemas=lines, events=SchemaChangeEvent, tables="other.*"
    ) as log:
        assert list(log) == []
    lines = Lines(recorded.lines(0))
    start = str(recorded.run.snapshots[5].position)
    chosen = {"events": SchemaChangeEvent, "tables": f"{schema}.*", "start": start}
    with replica.open_binlog(recorded.files, schemas=lines, **chosen) as log:  # type: ignore[arg-type]
        assert [(event.name, names_of(event.after)) for event in log] == [  # type: ignore[attr-defined]
            ("u", ("f", "id", "b", "c", "e")),
            ("u", ("id", "b", "c", "e")),
        ]
    with replica.open_binlog(recorded.files, schema=recorded.store(0)) as log:
        assert not [event for event in log if isinstance(event, SchemaChangeEvent)]


def names_of(shape: object) -> tuple[str, ...] | None:
    return None if shape is None else columns_of(shape)


def test_a_start_behind_the_place(recorded: Recorded) -> None:
    """The statements between the place and the start are read, too."""
    start = recorded.run.snapshots[6].position
    with replica.open_binlog(recorded.files, schemas=Lines(recorded.lines(0)), start=str(start)) as log:
        assert rows_of(log) == recorded.rows[-4:]
    with (
        replica.open_binlog(recorded.files[1:], schemas=Lines(recorded.lines(2))) as log,
        pytest.raises(SchemaMismatchError, match="and the log up to"),
    ):
        list(log)


def test_the_tables_of_the_end(recorded: Recorded) -> None:
    """Backward: what a statement took away or changed has no name; what the log creates is known."""
    lines = recorded.lines(-1)
    with replica.open_binlog(recorded.files, schemas=Lines(lines)) as log:
        # All tables of this log are created in it.
        assert rows_of(log) == recorded.rows
    files = recorded.files[1:]
    with replica.open_binlog(files, schemas=Lines(lines), on_schema_mismatch="positional") as log:
        found = rows_of(log)
    assert len(found) == 6
    for row, wanted in zip(found, recorded.rows[-6:], strict=True):
        named = {name: value for name, value in row.items() if not name.startswith("@")}
        assert named.items() <= wanted.items()
        assert named
    with replica.open_binlog(files, schemas=Lines(lines)) as log, pytest.raises(SchemaMismatchError):
        list(log)


def test_a_schema_file_at_a_place(recorded: Recorded) -> None:
    snapshot = recorded.run.snapshots[1]
    tables = {}
    for table, shape in snapshot.catalog.tables.items():
        assert isinstance(shape, Shape)
        tables[str(table)] = [
            {"name": column.name, "type": column.column_type, "charset": column.charset}
            for column in shape.columns
        ]
    file = recorded.folder / "shop.json"
    file.write_text(json.dumps(tables))
    with replica.open_binlog(recorded.files, schema=f"{file}@{snapshot.position}") as log:
        assert rows_of(log) == recorded.rows
    with pytest.raises(ConfigurationError, match="different logs"):
        list(replica.open_binlog(recorded.files, schema=f"{file}@other.000001:4"))


def test_one_schema_at_one_place(recorded: Recorded) -> None:
    with pytest.raises(ConfigurationError, match="leave @"):
        replica.open_binlog(
            recorded.files, schema=f"{recorded.store(0)}@{BinlogPosition('binlog.000001', 4)}"
        )
    with pytest.raises(ConfigurationError, match="either"):
        replica.open_binlog(recorded.files, schema={}, schemas=Lines([]))
