"""The folder of an unfinished export, ``DIR/.copy``: parts of files, and a database that says what counts.

What the database does not name was not committed: a killed export goes on from the last commit. A commit closes the
parts that are being written, and saves the stream's checkpoint with the changes up to it.
"""

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote

from protocol.errors import CheckpointError, ConfigurationError, SchemaMismatchError
from protocol.position import Checkpoint
from protocol.records import record
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from ..config.checked_json import checked, with_checksum
from ..config.checkpoint import FileCheckpointStore, sync_directory
from ..config.folder_names import fitting
from ..config.schema_store import SUFFIX, FileSchemaStore
from .disk_errors import disk_errors
from .row_formats import RowFormat
from .table_files import Part, TableRows, remove_part, without_rows
from .work_checks import SIZES, check_database, check_part, note_sizes

#: Schema and name of a table.
TableId = tuple[str, str]
#: What happened to a row with a key: the prepared row as bytes (None: it is gone), and +1 or -1 row with this key.
Operation = tuple[int, str, bytes | None, int]

CHECKPOINT: Final = "checkpoint.json"
_FOLDER: Final = ".copy"
_DATABASE: Final = "state.sqlite"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tables (number INTEGER PRIMARY KEY, schema TEXT, name TEXT, key TEXT, rows INTEGER,
    is_whole INTEGER, is_dropped INTEGER, UNIQUE (schema, name));
CREATE TABLE IF NOT EXISTS parts (path TEXT PRIMARY KEY, number INTEGER, rows INTEGER);
CREATE INDEX IF NOT EXISTS parts_of_tables ON parts (number);
CREATE TABLE IF NOT EXISTS changed (number INTEGER, key TEXT, row BLOB, count INTEGER, PRIMARY KEY (number, key))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS prepared (xid TEXT PRIMARY KEY, operations TEXT);
"""
# Marks of changed keys, one byte each: a row whose key has no mark was not changed.
_MARKS: Final = 1 << 22
# Changed keys that are held in memory at once while files get them.
_SLAB: Final = 200_000
# Tables whose changes are brought into files between two commits, each of which waits for the disk.
_FOLDED: Final = 100
# Parts that wait for the disk at a time, while rows are read; a file system writes them together.
_SYNCING: Final = 4


@record(slots=True)
class ExportedTable:
    """A table of the export. ``key``: the columns of the key by which it is copied; None: not known yet."""

    number: int
    schema: str
    name: str
    key: tuple[str, ...] | None = None
    is_whole: bool = False
    is_dropped: bool = False
    rows: TableRows | None = None
    part: Part | None = None

    def rows_of(self, table: Table, form: RowFormat) -> TableRows:
        """How rows with this table's columns are prepared."""
        if self.rows is None or self.rows.table is not table:
            self.rows = TableRows(table, self.key or (), form)
        return self.rows


class WorkFolder:
    """The unfinished export in ``folder``. ``wanted`` is what was asked for: a run that goes on asks for the same.

    Raises ``ConfigurationError`` for a folder with another export, finished or not; ``disk_errors`` has the rest.
    """

    def __init__(self, folder: str, form: RowFormat, wanted: Mapping[str, Any]) -> None:
        self._target = os.path.abspath(folder)
        self._folder = os.path.join(self._target, _FOLDER)
        self._form = form
        self._check()
        os.makedirs(self._folder, exist_ok=True)
        # The database is this process's alone.
        with disk_errors(folder):
            self._db = sqlite3.connect(os.path.join(self._folder, _DATABASE), isolation_level=None, timeout=0)
        self._doomed: list[str] = []
        self._syncing = ThreadPoolExecutor(_SYNCING, "export")
        self._synced: list[Future[None]] = []
        self._marks = bytearray(_MARKS)
        self._parts = 0
        self.tables: dict[TableId, ExportedTable] = {}
        # The numbers of tables without a key.
        self._keyless: set[int] = set()
        #: How many tables are not complete, and how many rows and changes came since the last commit.
        self.unfinished = self.rows_written = 0
        try:
            with disk_errors(folder):
                self._open(wanted)
        except BaseException:
            self._db.close()
            raise

    def _open(self, wanted: Mapping[str, Any]) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.executescript(_TABLES + SIZES)
        self._db.execute("BEGIN EXCLUSIVE")
        check_database(self._db, self._target)
        self._keep_wanted(wanted)
        self._load()

    def _check(self) -> None:
        if os.path.exists(os.path.join(self._target, CHECKPOINT)):
            raise ConfigurationError(
                f"{self._target} holds a finished export (its {CHECKPOINT}): give another folder, or remove it"
            )
        if not os.path.exists(os.path.join(self._folder, _DATABASE)):
            others = [name for name in _names_in(self._target) if name != _FOLDER]
            if others:
                raise ConfigurationError(
                    f"{self._target} is not empty ({others[0]}): give an empty or a new folder"
                )

    def _keep_wanted(self, wanted: Mapping[str, Any]) -> None:
        text = json.dumps(dict(wanted), sort_keys=True)
        before = self._meta("wanted")
        if before is None:
            self._set_meta("wanted", text)
        elif before != text:
            raise ConfigurationError(
                f"{self._target} holds an unfinished export of something else ({before}): give the same arguments "
                "to go on, or remove the folder"
            )

    def _load(self) -> None:
        for number, schema, name, key, is_whole, is_dropped in self._db.execute(
            "SELECT number, schema, name, key, is_whole, is_dropped FROM tables"
        ):
            known = None if key is None else tuple(json.loads(key))
            self.tables[schema, name] = ExportedTable(
                number, schema, name, known, bool(is_whole), bool(is_dropped)
            )
            self._keyless |= set() if known else {number}
        for number, key in self._db.execute("SELECT number, key FROM changed"):
            self._marks[hash((number, key)) % _MARKS] = 1
        committed = {path for (path,) in self._db.execute("SELECT path FROM parts")}
        for name in _names_in(self._folder):
            if name.startswith("part-") and name.removesuffix(".keys") not in committed:
                os.unlink(os.path.join(self._folder, name))
        if not self.is_copied:
            # Later they may have been moved to their places.
            for name in sorted(committed):
                check_part(self._db, os.path.join(self._folder, name))
        self._parts = int(self._meta("parts") or 0)
        self.unfinished = sum(not table.is_whole for table in self.tables.values())

    # The stream's place

    @property
    def schemas(self) -> FileSchemaStore:
        """The store of the stream's schema history."""
        return FileSchemaStore(os.path.join(self._folder, CHECKPOINT + SUFFIX))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The place of the last commit; None if nothing was committed."""
        text = self._meta("checkpoint")
        try:
            return None if text is None else Checkpoint.from_dict(checked(json.loads(text)))
        except ValueError as error:
            raise CheckpointError(
                f"{self._target}: the state of the unfinished export cannot be used ({error}): remove the folder, "
                "and copy again"
            ) from error

    @property
    def is_copied(self) -> bool:
        """Whether all is read, and only the files are to be finished."""
        return self._meta("copied") is not None

    @property
    def is_complete(self) -> bool:
        """Whether all tables are read, and no XA transaction with changes of them is prepared."""
        return not (self.unfinished or self.prepared)

    @property
    def prepared(self) -> list[str]:
        """The ids of prepared XA transactions that changed tables of the export."""
        return [xid for (xid,) in self._db.execute("SELECT xid FROM prepared")]

    def commit(self, checkpoint: Checkpoint, *, is_copied: bool = False) -> None:
        """Make everything up to the checkpoint durable."""
        for table in self.tables.values():
            self._close_part(table)
        self._set_meta("checkpoint", json.dumps(with_checksum(checkpoint.to_dict())))
        if is_copied:
            self._set_meta("copied", "1")
        self._commit()
        self.rows_written = 0

    def _commit(self) -> None:
        for synced in self._synced:
            synced.result()
        if self._synced:
            sync_directory(self._folder)
        self._synced = []
        self._set_meta("parts", str(self._parts))
        self._db.execute("COMMIT")
        for path in self._doomed:
            remove_part(path)
        self._doomed = []
        self._db.execute("BEGIN EXCLUSIVE")

    def close(self) -> None:
        """Close the database; what was not committed is done again by the next run."""
        for table in self.tables.values():
            if table.part is not None:
                table.part.abandon()
                table.part = None
        self._syncing.shutdown(cancel_futures=True)
        self._db.close()

    # What the stream brings

    def add_table(self, identity: TableId, key: Sequence[str]) -> None:
        """Take in a table, or another key of one."""
        table = self.tables.get(identity)
        if table is None:
            number = len(self.tables) + 1
            table = self.tables[identity] = ExportedTable(number, *identity)
            self.unfinished += 1
            self._db.execute("INSERT INTO tables VALUES (?, ?, ?, NULL, 0, 0, 0)", (number, *identity))
        table.key, table.rows = tuple(key), None
        self._keyless -= {table.number}
        self._keyless |= set() if key else {table.number}
        self._db.execute("UPDATE tables SET key = ? WHERE number = ?", (json.dumps(key), table.number))

    def add_rows(self, identity: TableId, shape: Table, rows: Sequence[Row]) -> None:
        """Take in rows that were read. Rows whose keys were changed before are kept with the changes."""
        table = self.tables[identity]
        maker = table.rows_of(shape, self._form)
        prepared = maker.prepare(rows)
        keys = maker.keys(rows, prepared)
        number, marks = table.number, self._marks
        if table.key:
            suspects = [place for place, key in enumerate(keys) if marks[hash((number, key)) % _MARKS]]
            changed = {place for place in suspects if self._is_changed(number, keys[place])}
            for place in changed:
                self.apply([(number, keys[place], self._form.to_bytes(prepared[place]), 0)])
            if changed:
                prepared = [one for place, one in enumerate(prepared) if place not in changed]
                keys = [key for place, key in enumerate(keys) if place not in changed]
        self._part_of(table, shape).write(prepared, keys)
        self.rows_written += len(prepared)

    def operations(
        self, identity: TableId, shape: Table, before: Row | None, after: Row | None
    ) -> list[Operation]:
        """The operations on keys by which a change of the log is applied to the export."""
        table = self.tables[identity]
        maker = table.rows_of(shape, self._form)
        found: list[Operation] = []
        if before is not None:
            prepared = [] if table.key else maker.prepare([before])
            [key] = maker.keys([before], prepared)
            found.append((table.number, key, None, -1))
        if after is not None:
            prepared = maker.prepare([after])
            [key] = maker.keys([after], prepared)
            found.append((table.number, key, self._form.to_bytes(prepared[0]), 1))
        return found

    def apply(self, operations: Sequence[Operation]) -> None:
        """Keep changes until the files get them."""
        self.rows_written += len(operations)
        for number, key, _, _ in operations:
            self._marks[hash((number, key)) % _MARKS] = 1
        self._db.executemany(
            "INSERT INTO changed VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "row = coalesce(excluded.row, CASE WHEN ? THEN row END), count = count + excluded.count",
            [(*operation, operation[0] in self._keyless) for operation in operations],
        )

    def keep_prepared(self, xid: str, operations: Sequence[Operation]) -> None:
        """Keep the changes of a prepared XA transaction until it is committed."""
        plain = [
            [number, key, None if row is None else row.hex(), count] for number, key, row, count in operations
        ]
        self._db.execute("INSERT OR REPLACE INTO prepared VALUES (?, ?)", (xid, json.dumps(plain)))

    def take_prepared(self, xid: str) -> list[Operation]:
        """The changes of a prepared XA transaction that has ended."""
        found = self._db.execute("SELECT operations FROM prepared WHERE xid = ?", (xid,)).fetchone()
        self._db.execute("DELETE FROM prepared WHERE xid = ?", (xid,))
        return [
            (number, key, None if row is None else bytes.fromhex(row), count)
            for number, key, row, count in json.loads(found[0] if found else "[]")
        ]

    def restart(self, identity: TableId) -> None:
        """Forget all rows of a table: it is read again. Its keys stay marked: rows of such a key may come twice."""
        table = self.tables[identity]
        if table.part is not None:
            table.part.abandon()
            self._doomed.append(table.part.path)
            table.part = None
        self._doomed += self._paths(table.number)
        forget = "UPDATE changed SET row = NULL, count = 0" if table.key else "DELETE FROM changed"
        for statement in ("DELETE FROM parts", forget):
            self._db.execute(f"{statement} WHERE number = ?", (table.number,))
        self._end(table, is_whole=False, is_dropped=False)

    def complete(self, identity: TableId, shape: Table, *, is_dropped: bool) -> None:
        """The table is read, or it does not exist any more."""
        table = self.tables[identity]
        if is_dropped:
            self.restart(identity)
        elif table.part is None and not self._paths(table.number):
            # An empty table has a file, too: it says which columns there are.
            self._part_of(table, shape)
        # A source may have more tables than a process may have files open.
        self._close_part(table)
        self._end(table, is_whole=True, is_dropped=is_dropped)

    def _end(self, table: ExportedTable, *, is_whole: bool, is_dropped: bool) -> None:
        self.unfinished += table.is_whole - is_whole
        table.is_whole, table.is_dropped = is_whole, is_dropped
        self._db.execute(
            "UPDATE tables SET is_whole = ?, is_dropped = ? WHERE number = ?",
            (is_whole, is_dropped, table.number),
        )

    def _is_changed(self, number: int, key: str) -> bool:
        found = self._db.execute("SELECT 1 FROM changed WHERE number = ? AND key = ?", (number, key))
        return found.fetchone() is not None

    # Parts

    def _new_path(self) -> str:
        self._parts += 1
        return os.path.join(self._folder, f"part-{self._parts:06d}.{self._form.suffix}")

    def _part_of(self, table: ExportedTable, shape: Table) -> Part:
        if table.part is None:
            path = self._new_path()
            columns = table.rows_of(shape, self._form).columns
            table.part = Part(path, self._form.create(path, shape, columns))
        return table.part

    def _close_part(self, table: ExportedTable) -> None:
        part = table.part
        if part is not None:
            part.close()
            table.part = None
            self._synced.append(self._syncing.submit(part.sync))
            name = os.path.basename(part.path)
            self._db.execute("INSERT INTO parts VALUES (?, ?, ?)", (name, table.number, part.rows))
            note_sizes(self._db, part.path)

    def _paths(self, number: int) -> list[str]:
        found = self._db.execute("SELECT path FROM parts WHERE number = ? ORDER BY path", (number,))
        return [os.path.join(self._folder, path) for (path,) in found]

    # The end

    def finish(self) -> Iterator[tuple[str, int]]:
        """Bring the changes into the files, and move these to their place. Yields each table and its rows.

        A run that was killed meanwhile does the rest of it.
        """
        changed = {number for (number,) in self._db.execute("SELECT DISTINCT number FROM changed")}
        for count, table in enumerate([one for one in self.tables.values() if one.number in changed], 1):
            self._fold(table)
            if not count % _FOLDED:
                self._commit()
        self._commit()
        for table in self.tables.values():
            if not table.is_dropped:
                [(rows,)] = self._db.execute("SELECT sum(rows) FROM parts WHERE number = ?", (table.number,))
                self._publish(table)
                yield f"{table.schema}.{table.name}", rows or 0
        place = self.checkpoint
        assert place is not None
        with contextlib.suppress(FileNotFoundError):
            # The history of the tables' columns: a stream that goes on needs it for rows before the next DDL.
            path = os.path.join(self._target, CHECKPOINT + SUFFIX)
            os.replace(os.path.join(self._folder, CHECKPOINT + SUFFIX), path)
        # Last, because it shows that the export is whole.
        sync_directory(self._target)
        FileCheckpointStore(os.path.join(self._target, CHECKPOINT)).save(place)
        self.close()
        shutil.rmtree(self._folder)

    def _fold(self, table: ExportedTable) -> None:
        """Leave rows out of the parts that were changed later, and write these rows into a part of their own."""
        paths = self._paths(table.number)
        for path in paths:
            check_part(self._db, path)
        for drops in self._slabs(table):
            for path in self._paths(table.number):
                target = self._new_path()
                dropped = without_rows(path, target, self._form, drops)
                if dropped:
                    self._replace(table, path, target, dropped)
        rows = self._db.execute(
            "SELECT row, count FROM changed WHERE number = ? AND row IS NOT NULL AND (count > 0 OR ?)",
            (table.number, bool(table.key)),
        )
        first = next(rows, None)
        if first is not None and paths:
            self._write_changed(table, self._paths(table.number)[0], first, rows)
        self._check_changes(table)
        self._db.execute("DELETE FROM changed WHERE number = ?", (table.number,))

    def _check_changes(self, table: ExportedTable) -> None:
        """A row of a table without a key that the log deletes must have been read."""
        left = "SELECT 1 FROM changed WHERE number = ? AND count < 0 AND ? LIMIT 1"
        if self._db.execute(left, (table.number, not table.key)).fetchone():
            raise SchemaMismatchError(
                f"the log deletes a row of {table.schema}.{table.name} that was not read: the rows of a table "
                "without a key are told apart by all of their values -- add a primary key, or leave the table out"
            )

    def _slabs(self, table: ExportedTable) -> Iterator[dict[str, int]]:
        """Keys whose rows are to be left out of the parts, with how many of them."""
        after = ""
        while True:
            found = self._db.execute(
                "SELECT key, count FROM changed WHERE number = ? AND key > ? AND (count < 0 OR ?) ORDER BY key "
                "LIMIT ?",
                (table.number, after, bool(table.key), _SLAB),
            ).fetchall()
            if not found:
                return
            yield {key: 1 if table.key else -count for key, count in found}
            after = found[-1][0]

    def _replace(self, table: ExportedTable, path: str, target: str, dropped: Sequence[str]) -> None:
        self._db.execute(
            "UPDATE parts SET path = ?, rows = rows - ? WHERE path = ?",
            (os.path.basename(target), len(dropped), os.path.basename(path)),
        )
        note_sizes(self._db, target)
        if not table.key:
            self._db.executemany(
                "UPDATE changed SET count = count + 1 WHERE number = ? AND key = ?",
                [(table.number, key) for key in dropped],
            )
        self._doomed.append(path)
        self._commit()

    def _write_changed(
        self, table: ExportedTable, like: str, first: tuple[bytes, int], rows: Iterator[tuple[bytes, int]]
    ) -> None:
        path = self._new_path()
        table.part = Part(path, self._form.create_like(path, like))
        batch: list[Any] = []
        found: tuple[bytes, int] | None = first
        while found is not None:
            row, count = found
            batch += [self._form.of_bytes(row)] * (1 if table.key else count)
            found = next(rows, None)
            if found is None or len(batch) >= 1000:
                table.part.write(batch, [])
                batch = []
        self._close_part(table)

    def _publish(self, table: ExportedTable) -> None:
        # The first dot ends the schema: `a.b`.`c` has another folder than `a`.`b.c`.
        schema = quote(table.schema, safe=" ").replace(".", "%2E")
        folder = os.path.join(self._target, fitting(f"{schema}.{quote(table.name, safe=' ')}"))
        os.makedirs(folder, exist_ok=True)
        for number, path in enumerate(self._paths(table.number)):
            target = os.path.join(folder, f"part-{number:05d}.{self._form.suffix}")
            # A run that was killed here has moved some of them.
            check_part(self._db, path, path if os.path.exists(path) else target)
            if os.path.exists(path):
                os.replace(path, target)
        sync_directory(folder)

    def _meta(self, name: str) -> str | None:
        found = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def _set_meta(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _names_in(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
