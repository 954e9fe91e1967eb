"""The state that a job with kept tables needs from one micro-batch to the next, in a small Delta table in its target.

    target/_state/tables    a row for each known table, for each part of a prepared XA transaction, and so on

It is the last write of a micro-batch, with the number of the micro-batch as the version of its transaction, and only
if the state has changed. So a micro-batch that is run again finds the state before it, or finds that it is done.
Spark's own checkpoint, and the spool, are elsewhere (``spark_session.State``).
"""

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from pyarrow.fs import FileSelector

from protocol.errors import CheckpointError
from protocol.position import BinlogPosition, file_number
from protocol.records import field, record, replace

from ...sql import ddl
from ..gather import epoch_of, place_number
from .kept_table import ATTEMPTS
from .leaf_files import folder
from .rows_again import RowsAgain, may_lose
from .staging import Part, part_from_json, part_to_json, schema_from_text, schema_to_text
from .state_files import Row, SavedRows, Texts, as_table, read_rows, saved_whole, write_all, write_changes
from .target_kind import TABLES_STATE
from .unreadable import told

_LOGGER: Final = logging.getLogger(__name__)
FOLDER: Final = TABLES_STATE
PROGRESS: Final = "_state/progress"
_MOMENT: Final = pa.timestamp("us", "UTC")
_PROGRESS_SCHEMA: Final = pa.schema(
    [
        ("table", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("batch", pa.int64()),
        ("rows", pa.int64()),
        ("lag", pa.float64()),
        ("merged_batch", pa.int64()),
        ("merged_at", _MOMENT),
        ("size", pa.int64()),
        ("waiting_rows", pa.int64()),
        ("waiting_bytes", pa.int64()),
        ("waiting_since", _MOMENT),
        ("consistent_since", _MOMENT),
    ]
)
# Each hundredth commit deletes older ones, as a save lists all: with 500 it took 0.013 s, with 4,000 0.053 s.
_RETENTION: Final = MappingProxyType({"delta.logRetentionDuration": "interval 1 hours"})
_REMEDY: Final = (
    "let this user read and write the folder, and make room if the disk is full; if it is "
    "damaged, the tables are to be made anew in another target"
)
# The row with the query and the micro-batch, for readers of the state that are not given them.
_PLACE: Final = "place"
_TEXTS: Final = MappingProxyType({"begins": "begins", "parked": "parked", "hold": "holds"})
_SETS: Final = MappingProxyType({"schema": "schemas", "absent": "absent"})


@record(slots=True)
class TableState:
    """The state of a table whose rows are all known.

    ``defaults`` has the defaults of columns as text, if they are plain values. ``fills`` has the values, in the
    present rows, of new columns that the target does not have yet. ``kinds`` has the types that statements gave to
    columns; under "" the default character set. ``is_seeded``: the first columns came from a seed, not from a CREATE
    TABLE. ``size`` has the bytes and ``rows`` the number of rows of the table's files after its last merge, which was
    in the micro-batch ``merged_batch`` at ``merged_at``, in seconds since 1970. ``since``: since when all versions of
    the table are states that the source had; 0: not yet. ``is_settling``: it was copied, and merges may find rows
    later than the changes (``rows_again``). ``key`` has the columns of the primary key at the last merge, or in the
    copy. ``version``: the version of the Delta table when this was saved; -1: not known, or no table yet.
    """

    defaults: dict[str, str | None] = field(default_factory=dict)
    is_seeded: bool = False
    fills: dict[str, str | None] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    size: int = 0
    rows: int = 0
    merged_at: int = 0
    merged_batch: int = -1
    since: int = 0
    is_settling: bool = False
    key: list[str] = field(default_factory=list)
    version: int = -1

    def spelled(self, name: str, others: Iterable[str] = ()) -> str:
        """A column's name with the letter case in which it is known here: to the server, ``ID`` is ``id``.

        ``others`` are known names, too.
        """
        known = {*self.defaults, *self.fills, *self.kinds, *others}
        if name in known:
            return name
        return next((one for one in sorted(known) if one.lower() == name.lower()), name)

    def rename_column(self, name: str, new: str) -> None:
        """A column has another name."""
        for values in (self.defaults, self.fills, self.kinds):
            if name in values:
                values[new] = values.pop(name)  # type: ignore[assignment]
        self.key = [new if one == name else one for one in self.key]

    def drop_column(self, name: str) -> None:
        """A column is gone."""
        for values in (self.defaults, self.fills, self.kinds):
            values.pop(name, None)
        self.key = [one for one in self.key if one != name]

    def set_default(self, name: str, column: ddl.ColumnDefinition, fields: Iterable[str]) -> bool:
        """Set a column's default; ``fields`` are the target's columns.

        Returns False for a column that is not known, as the seed lacks it.
        """
        if self.is_seeded and name not in {*fields, *self.defaults, *self.kinds}:
            return False
        self.defaults.pop(name, None)
        if not column.is_filled:
            self.defaults[name] = column.default
        return True

    def note_merge(self, columns: Iterable[str], key: Iterable[str]) -> None:
        """The table has got these columns, and the present rows their values."""
        for column in columns:
            self.fills.pop(column, None)
        self.key = list(key)


@record(frozen=True, slots=True)
class PreparedRows:
    """Rows of one table in a prepared XA transaction."""

    table: str
    key: tuple[str, ...]
    schema: pa.Schema
    part: Part


@record(slots=True)
class Waiting:
    """Rows of one table that wait for a merge, since a time in seconds since 1970."""

    key: tuple[str, ...]
    schema: pa.Schema
    since: int
    parts: list[Part] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The bytes of the rows in files."""
        return sum(part.length for part in self.parts)


@record(slots=True)
class JobState:
    """The state of a job.

    ``tables`` has the known tables. ``schemas`` has the schemas that the log itself created or dropped, ``absent``
    the tables that the log dropped or renamed. ``prepared`` has the rows of prepared XA transactions by id.
    ``is_birth``: the log begins with the server's first binlog file, or all tables were copied. ``folds_names``:
    the server stores table names in lower case (lower_case_table_names=1). ``waiting`` has the rows that wait for a
    merge by table; ``merges`` is the number of merges since the last micro-batch. ``is_history``: the tables have
    past states, too. ``is_changelog``: their rows are changes. ``stamps``: the columns of the module ``stamps`` that
    rows have. ``begins``: table copied from the source -> the place from which its log counts, as ``FILE:POSITION``;
    "" stands for all tables that were not copied. ``parked`` has the tables that are kept no longer, with the reason.
    ``holds`` has the tables that are being copied anew, with the id of the copy for which their changes wait.
    ``epoch`` is the ``Offset.epoch`` of the last change. ``wanted`` says which tables the job selects. ``copied``:
    where the log ended when the first copy did; None once the stream has passed this place. ``again`` has the rows to
    read again of tables that are settling. ``saved``: how it was saved or loaded; None: not saved yet. ``texts``
    makes the text of tables.
    """

    tables: dict[str, TableState] = field(default_factory=dict)
    schemas: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    prepared: dict[str, list[PreparedRows]] = field(default_factory=dict)
    is_birth: bool = False
    folds_names: bool = False
    waiting: dict[str, Waiting] = field(default_factory=dict)
    merges: int = 0
    is_history: bool = False
    is_changelog: bool = False
    stamps: list[str] = field(default_factory=list)
    begins: dict[str, str] = field(default_factory=dict)
    parked: dict[str, str] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    wanted: str | None = None
    copied: str | None = None
    again: dict[str, RowsAgain] = field(default_factory=dict)
    saved: SavedRows | None = field(default=None, repr=False, compare=False)
    texts: Texts = field(default_factory=Texts, repr=False, compare=False)

    def is_before(self, name: str, file: str, position: int) -> bool:
        """Whether the copy of the source's tables already has the log's changes of a table at this place."""
        begin = self.begins.get(self._copied(name))
        if begin is None:
            return False
        place = BinlogPosition.parse(begin)
        if (file_number(file), position) < (file_number(place.file), place.position):
            return True
        del self.begins[self._copied(name)]
        return False

    def reach(self, file: str, position: int, epoch: int) -> None:
        """Note that all changes before this place are in the tables, or wait for a merge."""
        if self.copied is not None and file:
            place = BinlogPosition.parse(self.copied)
            if epoch or (file_number(file), position) >= (file_number(place.file), place.position):
                self.copied = None

    def begin_of(self, name: str) -> int | None:
        """The sequence number from which the log of a table counts; None: all of it counts."""
        begin = self.begins.get(self._copied(name))
        if begin is None:
            return None
        place = BinlogPosition.parse(begin)
        return place_number(self.epoch, file_number(place.file), place.position)

    def _copied(self, name: str) -> str:
        return name if name in self.tables else ""

    def see(self, number: int) -> None:
        """Note the sequence number of an event. All places in another server's log come after those before it."""
        if (epoch := epoch_of(number)) > self.epoch:
            self.epoch = epoch
            self.begins.clear()

    def forget(self, name: str, begin: int) -> None:
        """Forget waiting rows of a table before this sequence number, as a copy has them."""
        if (waiting := self.waiting.get(name)) is not None:
            waiting.parts = [left for part in waiting.parts if (left := part.behind(begin)) is not None]
            if not waiting.parts:
                del self.waiting[name]
        for xa, parts in list(self.prepared.items()):
            self.prepared[xa] = [
                rows for rows in parts if rows.table != name or rows.part.behind(begin) == rows.part
            ]

    def rename(self, name: str, new: str) -> None:
        """Rename a table to a name that no table has."""
        self.tables[new] = self.tables.pop(name)
        self.tables[new].version = -1
        if name in self.again:
            self.again[new] = self.again.pop(name)
        self.miss(name)
        self.absent.discard(new)

    def miss(self, name: str) -> None:
        """Note a table that the log dropped or renamed; if all tables are known from their birth, one is enough."""
        if self.is_birth:
            self.absent.clear()
        self.absent.add(name)

    def note_moves(self, name: str, key: tuple[str, ...], part: Part) -> None:
        """Note rows of a copied table, in which ``rows_again`` later finds the keys to read again."""
        is_open = self.copied is not None and name in self.tables and self.tables[name].is_settling
        if may_lose(part) and (is_open or name in self.again):
            self.again.setdefault(name, RowsAgain(key)).add(part, key)

    def rows(self) -> list[Row]:
        """The state as rows of its Delta table."""
        return list(self._rows())

    def _rows(self) -> Iterator[Row]:
        yield "log", "is_birth", json.dumps(self.is_birth), None
        yield "log", "folds_names", json.dumps(self.folds_names), None
        yield "log", "merges", json.dumps(self.merges), None
        yield "log", "is_history", json.dumps(self.is_history), None
        yield "log", "epoch", json.dumps(self.epoch), None
        yield "log", "wanted", json.dumps(self.wanted), None
        yield "log", "copied", json.dumps(self.copied), None
        yield "log", "is_changelog", json.dumps(self.is_changelog), None
        yield "log", "stamps", json.dumps(self.stamps), None
        for name, text in self.texts.of(self.tables):
            yield "table", name, text, None
        for name, waiting in sorted(self.waiting.items()):
            listed = [part_to_json(part) for part in waiting.parts]
            about = [waiting.key, schema_to_text(waiting.schema), waiting.since, listed]
            yield "waiting", name, json.dumps(about), None
        for name, place in sorted(self.begins.items()):
            yield "begins", name, place, None
        for name, reason in sorted(self.parked.items()):
            yield "parked", name, reason, None
        for name, copy in sorted(self.holds.items()):
            yield "hold", name, copy, None
        for name, again in sorted(self.again.items()):
            yield "again", name, json.dumps(again.to_json()), None
        for name in sorted(self.schemas):
            yield "schema", name, "", None
        for name in sorted(self.absent):
            yield "absent", name, "", None
        for xa, parts in sorted(self.prepared.items()):
            for number, rows in enumerate(parts):
                facts = [number, rows.table, rows.key, schema_to_text(rows.schema), part_to_json(rows.part)]
                yield "xa", xa, json.dumps(facts), None

    def files(self) -> set[str]:
        """The files of parts that are still needed."""
        prepared = {rows.part.path for parts in self.prepared.values() for rows in parts}
        waiting = {part.path for rows in self.waiting.values() for part in rows.parts}
        again = {part.path for one in self.again.values() for part in (*one.parts, *one.read)}
        return prepared | waiting | again

    def progress(self, batch: int, now: float) -> pa.Table:
        """A row for each table, as of this micro-batch; see ``replica.spark.jobs.progress``."""
        rows = []
        for name in sorted({*self.tables, *self.parked, *self.holds}):
            table, waiting = self.tables.get(name, TableState()), self.waiting.get(name)
            parts = [] if waiting is None else waiting.parts
            lag = 0.0 if waiting is None else max(now - waiting.since, 0.0)
            rows.append(
                {
                    "table": name,
                    "state": "copying" if name in self.holds else "parked" if name in self.parked else "kept",
                    "reason": self.parked.get(name),
                    "batch": batch,
                    "rows": table.rows,
                    "lag": None if name in self.parked else lag,
                    "merged_batch": table.merged_batch,
                    "merged_at": table.merged_at * 1_000_000 or None,
                    "size": table.size,
                    "waiting_rows": sum(part.rows for part in parts),
                    "waiting_bytes": sum(part.length for part in parts),
                    "waiting_since": None if waiting is None else waiting.since * 1_000_000,
                    "consistent_since": table.since * 1_000_000 or None,
                }
            )
        return pa.Table.from_pylist(rows, schema=_PROGRESS_SCHEMA)

    @classmethod
    def from_rows(cls, rows: list[Row]) -> "JobState":
        """The reverse of ``rows``. Rows that are not a state raise any of several errors."""
        state = cls()
        prepared = []
        for kind, name, value, _ in rows:
            if kind == "log":
                setattr(state, name, json.loads(value))
            elif kind == "table":
                state.tables[name] = TableState(**json.loads(value))
            elif kind == "waiting":
                key, schema, since, parts = json.loads(value)
                rows_ = [part_from_json(part) for part in parts]
                state.waiting[name] = Waiting(tuple(key), schema_from_text(schema), since, rows_)
            elif kind in ("begins", "parked", "hold"):
                getattr(state, _TEXTS[kind])[name] = value
            elif kind == "again":
                state.again[name] = RowsAgain.from_json(json.loads(value))
            elif kind == "xa":
                number, table, key, schema, part = json.loads(value)
                found = PreparedRows(table, tuple(key), schema_from_text(schema), part_from_json(part))
                prepared.append((name, number, found))
            elif kind in _SETS:
                getattr(state, _SETS[kind]).add(name)
            elif kind != _PLACE:
                raise ValueError(f"it has rows of the kind {kind!r}")
        for xa, _, found in sorted(prepared, key=lambda one: one[:2]):
            state.prepared.setdefault(xa, []).append(found)
        return state


def exists(target: str, storage: Mapping[str, str]) -> bool:
    """Whether a job has begun in this target."""
    return _opened(target, storage) is not None


def load(target: str, query: str, batch: int, storage: Mapping[str, str]) -> tuple[JobState, int] | None:
    """The state, and the number of the last micro-batch that changed it; None if this query has just begun.

    Raises ``CheckpointError`` for a target that belongs to another query, or whose state cannot be read.
    """
    if (table := _opened(target, storage)) is None:
        if batch > 0:
            raise CheckpointError(
                f"{target}: the state belongs to a query that continues at batch {batch}, but the target has nothing "
                "of it -- give the state of this target, or delete the state to begin anew"
            )
        return None
    done = table.transaction_version(query)
    if done is None:
        raise CheckpointError(
            f"{target}: the tables here belong to another query -- give its state, or another target"
        )
    rows, saved = _rows_of(table, target, storage)
    if any(kind == _PLACE and (name, value) != (query, json.dumps(done)) for kind, name, value, _ in rows):
        raise CheckpointError(
            f"{target}/{FOLDER} was restored to an older version, and no longer says what the tables have: restore "
            "it to its last version, or begin in another folder"
        )
    return _state_of(rows, target, saved), done


def _opened(target: str, storage: Mapping[str, str]) -> DeltaTable | None:
    path = f"{target}/{FOLDER}"
    with told(path, _REMEDY):
        try:
            return DeltaTable(path, storage_options=dict(storage))
        except TableNotFoundError:
            # The folder is empty, or this user may not look into it: that is an error of the system.
            if folder(target, storage).get_file_info(FileSelector(FOLDER, allow_not_found=True)):
                raise CheckpointError(f"{path}: it has files, but no log of Delta -- {_REMEDY}") from None
            return None


def _rows_of(table: DeltaTable, target: str, storage: Mapping[str, str]) -> tuple[list[Row], SavedRows]:
    with told(f"{target}/{FOLDER}", _REMEDY):
        return read_rows(table, f"{target}/{FOLDER}", storage)


def peek(target: str, storage: Mapping[str, str]) -> tuple[JobState, str, int] | None:
    """The state with the id of its query and its micro-batch, for readers; None if there is none."""
    if (table := _opened(target, storage)) is None:
        return None
    rows, saved = _rows_of(table, target, storage)
    places = [(name, json.loads(value)) for kind, name, value, _ in rows if kind == _PLACE]
    return (_state_of(rows, target, saved), *places[0]) if places else None


def _state_of(rows: list[Row], target: str, saved: SavedRows) -> JobState:
    try:
        return replace(JobState.from_rows(rows), saved=saved)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{target}/{FOLDER}: this mysql-replica cannot read the state ({error}): if a later one has written it, "
            "upgrade; else it is damaged, and the tables are to be made anew in another target"
        ) from error


def save_progress(target: str, state: JobState, batch: int, storage: Mapping[str, str]) -> None:
    """Write the progress of all tables, for people. That it cannot be written is a warning."""
    rows, path = state.progress(batch, time.time()), f"{target}/{PROGRESS}"
    try:
        with told(path, "delete the folder, it is made anew"):
            write_all(
                path, rows, storage, mode="overwrite", schema_mode="overwrite", configuration=dict(_RETENTION)
            )
    except CheckpointError as error:
        _LOGGER.warning("%s", error)


def vacuum(target: str, hours: int, storage: Mapping[str, str], saved: DeltaTable | None = None) -> None:
    """Delete the files of states and of progress that are older; ``saved``: the table of the state, if it is open."""
    for name, table in ((FOLDER, saved), (PROGRESS, None)):
        if table is None and DeltaTable.is_deltatable(f"{target}/{name}", dict(storage)):
            table = DeltaTable(f"{target}/{name}", storage_options=dict(storage))
        if table is not None:
            if not _RETENTION.items() <= table.metadata().configuration.items():
                # An earlier release has made the table.
                table.alter.set_table_properties(dict(_RETENTION))
            table.vacuum(hours, dry_run=False, enforce_retention_duration=False)


def check_newest(target: str, state: JobState, storage: Mapping[str, str]) -> DeltaTable | None:
    """The table of the state as it is now. Raises ``CheckpointError`` if another process has saved a state since."""
    table = _opened(target, storage)
    if table is not None and (state.saved is None or table.file_uris() != state.saved.table.file_uris()):
        raise CheckpointError(f"{target}: another driver runs this job, and this one ends -- run only one")
    return table


def save(target: str, state: JobState, query: str, batch: int, storage: Mapping[str, str]) -> None:
    """Write the state after this micro-batch. Raises as ``check_newest``."""
    path, done = f"{target}/{FOLDER}", Transaction(query, batch)
    rows = [*state.rows(), (_PLACE, query, json.dumps(batch), None)]
    with told(path, _REMEDY):
        if state.saved is None or not write_changes(path, rows, state.saved, storage, done):
            state.saved = saved_whole(_write_whole(target, state, rows, storage, done), rows)


def _write_whole(
    target: str,
    state: JobState,
    rows: list[Row],
    storage: Mapping[str, str],
    done: Transaction,
    left: int = ATTEMPTS,
) -> DeltaTable:
    table = check_newest(target, state, storage)
    more = {"mode": "error" if table is None else "overwrite", "configuration": dict(_RETENTION)}
    # No retries: a commit behind that of another driver might be accepted.
    own = CommitProperties(max_commit_retries=0, app_transactions=[done])
    try:
        return write_all(f"{target}/{FOLDER}", as_table(rows), storage, table, commit_properties=own, **more)
    except CommitFailedError:
        if not left:
            raise
    return _write_whole(target, state, rows, storage, done, left - 1)
