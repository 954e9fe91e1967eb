"""The files of the state of a job: one has all rows, and a second one what has changed since that was written.

    part-*.parquet     all rows, at a save that wrote them anew
    since-*.parquet    the rows of each kind and name that has others now; a row ``gone`` if it has none

A job may have thousands of tables, of which a micro-batch changes few. So a save replaces the second file only, until
as many bytes of rows were written so as the state has. Each save is one commit, and the rows of the state are always
those of the version's files.
"""

import contextlib
import copy
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import RemoveAction

from protocol.records import field, record

from .kept_table import add_action
from .leaf_files import FileWriter, dataset, folder

Row = tuple[str, str, str, bytes | None]
_Key = tuple[str, str]

SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("name", pa.string()), ("value", pa.string()), ("data", pa.binary())]
)
_SINCE: Final = "since-"
# A row with this kind has the key of rows that are gone.
_GONE: Final = "gone"


class Texts:
    """Records as JSON text, which is made anew only for a record that has changed since it was asked for last."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[Any, ...], str]] = {}

    def of(self, records: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The names and texts of these records, by name. Others are forgotten."""
        if len(self._known) > len(records):
            self._known = {name: known for name, known in self._known.items() if name in records}
        for name, one in sorted(records.items()):
            facts = tuple([getattr(one, fact) for fact in one.__slots__])
            known = self._known.get(name)
            if known is None or known[0] != facts:
                text = json.dumps(dict(zip(one.__slots__, facts, strict=True)))
                known = self._known[name] = copy.deepcopy(facts), text
            yield name, known[1]


@record(slots=True)
class SavedRows:
    """A state in its table. ``whole`` has the rows of the first file; ``written`` counts bytes written since."""

    table: DeltaTable
    whole: dict[_Key, list[Row]] = field(repr=False)
    written: int = 0


def as_table(rows: Sequence[Row]) -> pa.Table:
    """Rows as Arrow has them."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def saved_whole(table: DeltaTable, rows: Iterable[Row]) -> SavedRows:
    """The state after all of its rows were written anew."""
    return SavedRows(table, _grouped(rows))


def read_rows(table: DeltaTable, path: str, storage: Mapping[str, str]) -> tuple[list[Row], SavedRows]:
    """The rows of the state, and how they are saved."""
    whole: list[Row] = []
    since: list[Row] = []
    for fragment in dataset(table, path, storage).get_fragments():
        found = fragment.to_table(schema=SCHEMA)
        rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
        (since if _is_second(fragment.path) else whole).extend(rows)
    changed = {_key(row) for row in since}
    kept = [row for row in whole if _key(row) not in changed]
    rows_now = [*kept, *(row for row in since if row[0] != _GONE)]
    return rows_now, SavedRows(table, _grouped(whole), _size(since))


def write_changes(
    path: str, rows: Sequence[Row], saved: SavedRows, storage: Mapping[str, str], done: Transaction
) -> bool:
    """Replace the second file of the state. Returns False, with nothing written, if all rows are to be written.

    That is so if it takes fewer bytes in the long run, or if others have changed the table, also by a VACUUM.
    """
    since = list(_changes(_grouped(rows), saved.whole))
    size = _size(since)
    if saved.written + size >= _size(rows):
        return False
    system = folder(path, storage)
    file = FileWriter(system, f"{_SINCE}{uuid.uuid4()}.parquet", SCHEMA)
    file.add(as_table(since))
    new = file.finish()
    now, files = int(time.time() * 1000), pa.table(saved.table.get_add_actions())
    olds = [
        RemoveAction(old, True, now, length, {})
        for old, length in zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)
        if _is_second(old)
    ]
    # No retries: a commit behind that of another driver would be accepted.
    properties = CommitProperties(max_commit_retries=0, app_transactions=[done])
    try:
        saved.table.create_write_transaction(
            [*olds, add_action(new)], "append", saved.table.schema(), [], commit_properties=properties
        )
        saved.table = DeltaTable(path, storage_options=dict(storage))
    except CommitFailedError:
        found = DeltaTable(path, storage_options=dict(storage))
        # If the answer to the commit was lost, deltalake sent it again, and it conflicted with itself.
        if not any(uri.endswith(new.path) for uri in found.file_uris()):
            with contextlib.suppress(OSError):
                system.delete_file(new.path)
            return False
        saved.table = found
    saved.written += size
    return True


def write_all(
    path: str, rows: pa.Table, storage: Mapping[str, str], table: DeltaTable | None = None, **more: Any
) -> DeltaTable:
    """Have these rows be all of a small Delta table, which is returned."""
    stored = dict(storage)
    try:
        write_deltalake(table or path, rows, storage_options=stored, **more)
    except DeltaError:
        # If the answer to the commit was lost, deltalake sent it again, and it conflicted with itself.
        found = DeltaTable(path, storage_options=stored)
        if not dataset(found, path, storage).to_table().equals(rows):
            raise
        return found
    return table or DeltaTable(path, storage_options=stored)


def _changes(now: Mapping[_Key, list[Row]], whole: Mapping[_Key, list[Row]]) -> Iterator[Row]:
    for key, rows in now.items():
        if whole.get(key) != rows:
            yield from rows
    for kind, name in whole.keys() - now.keys():
        yield _GONE, name, kind, None


def _grouped(rows: Iterable[Row]) -> dict[_Key, list[Row]]:
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append(row)
    return found


def _key(row: Row) -> _Key:
    kind, name, value, _ = row
    return (value, name) if kind == _GONE else (kind, name)


def _size(rows: Iterable[Row]) -> int:
    return sum(len(kind) + len(name) + len(value) for kind, name, value, _ in rows)


def _is_second(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_SINCE)
