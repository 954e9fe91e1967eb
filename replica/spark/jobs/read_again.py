"""Reads rows of copied tables again, by key, and lets them wait after all changes: see ``rows_again``.

    place      where the stream stands: the rows must show all changes before it
    read       by MySQL's GTIDs, when the server has executed them all; else with share locks, which wait for commits
    changes    the rows as inserts, and a delete for each key without a row

If a statement has changed the table after the place, or a row stays locked, the table is read later.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from protocol.errors import ConnectionLostError, SchemaMismatchError, ServerError
from protocol.position import BinlogPosition, file_number
from protocol.records import record
from protocol.rows.undecoded_rows import UndecodedRows

from ...arrow.temporal import TIMESTAMP
from ...config.options import Options
from ...config.table_names import split_text
from ...schemas.reading import TableReader
from ...schemas.touched import touched_by
from ...snapshot.chunk_reader import SILENCE, Chunk, prepare_session
from ...snapshot.key_rows import keys_sql
from ...snapshot.marks import FileMark, Place
from ...snapshot.read_plan import ReadPlan
from ...snapshot.row_keys import KeyRange
from ...snapshot.source_marks import high_mark, low_mark
from ...snapshot.table_list import read_plans
from ...source.hosts import first_host
from ...source.server_facts import Source, ask
from ...source.session import Session
from ...spool.offsets import Offset
from ...sql.token_reader import TableName
from ..gather import SEQ_TYPE, place_number
from ..source_options import parse_options
from ..stream_connection import connection_options
from .blocking import run_aside
from .changes_per_key import KEPT_FACTS, Key
from .copy_plan import kept_schema
from .copy_tasks import kept_rows
from .first_copy import CONNECTING
from .job_state import JobState
from .leaf_files import folder
from .leaf_merge import KeyIndex
from .micro_batch import Batch
from .rows_again import RowsAgain
from .staging import Part, StagingFile
from .target import Target

_LOGGER: Final = logging.getLogger(__name__)
_KEYS_AT_ONCE: Final = 200
_ATTEMPTS: Final = 5
_PAUSE: Final = 1.0
_SECONDS: Final = 30
_LOCK_SECONDS: Final = 5
# A row is locked: a deadlock, or the wait was too long.
_LOCKED: Final = frozenset({1205, 1213})
# The table was altered or dropped; the statement comes later in the log.
_ALTERED: Final = frozenset({1412, 1146, 1049, 1051, 1054})
_ABSENT: Final = pa.list_(pa.field("element", pa.string()))


@record(frozen=True, slots=True)
class ReadAgain:
    """Reads rows of a job's tables again. ``source`` has the options that the job was given."""

    source: Mapping[str, str]
    target: Target

    def is_due(self, state: JobState, end: Offset) -> bool:
        """Whether a table has rows to read now that the stream stands at ``end``."""
        return state.copied is None and any(one.is_over(end) for one in state.again.values())

    def run(self, state: JobState, batch: Batch, end: Offset) -> None:
        """Let the rows of all tables wait for a merge, and forget the tables that need no more reads."""
        for name, one in list(state.again.items()):
            if name in state.parked:
                del state.again[name]
            elif one.is_over(end):
                try:
                    self._table(state, batch, name, one, end)
                except SchemaMismatchError as error:
                    batch.trouble(name, error)

    def _table(self, state: JobState, batch: Batch, name: str, one: RowsAgain, end: Offset) -> None:
        if not one.key:
            raise _other_key(name)
        system = folder(self.target.path, self.target.storage)
        keys = one.keys(system, end.epoch)
        if not keys:
            del state.again[name]
            return
        file = StagingFile(self.target.path, self.target.storage)
        parts: list[tuple[Part, pa.Schema]] = []

        def take(rows: pa.Table) -> None:
            parts.append((file.write(rows, one.key), rows.schema))

        given = {option: value for option, value in self.source.items() if option.lower() in CONNECTING}
        options = connection_options(parse_options({**given, "snapshot": "only", "table": name}))
        until = run_aside(_Reading(options, name, one.key, end, take).run(keys))
        file.close()
        if until is None:
            return
        for part, schema in parts:
            batch.add(name, one.key, schema, part)
        _LOGGER.info("%s: %d rows read again, up to %s", name, len(keys), until)
        following = RowsAgain(one.key, [], [part for part, _ in parts], str(until), end.epoch)
        if following.is_over(end):
            # The log has not grown since.
            del state.again[name]
        else:
            state.again[name] = following


class _Reading:
    """One table that is read by keys."""

    def __init__(
        self,
        options: Options,
        name: str,
        key: tuple[str, ...],
        end: Offset,
        take: Callable[[pa.Table], None],
    ) -> None:
        self._options = options
        self._table = TableName(*split_text(name))
        self._key = key
        self._end = end
        self._take = take

    async def run(self, keys: Sequence[Key]) -> BinlogPosition | None:
        """The log's end after the read; None if the rows must be read later.

        Raises ``SchemaMismatchError`` if the table has another key now.
        """
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE)
            session = await first_host(self._options, Session.open)
            try:
                return await self._read(session, keys)
            except ConnectionLostError as error:
                if attempt == _ATTEMPTS - 1:
                    raise
                _LOGGER.info("reading %s.%s: %s -- trying again", *self._table, error)
            except ServerError as error:
                if error.code not in _LOCKED | _ALTERED:
                    raise
                _LOGGER.info("reading %s.%s: %s -- trying again", *self._table, error)
            finally:
                session.abort()
        return None

    async def _read(self, session: Session, keys: Sequence[Key]) -> BinlogPosition | None:
        await prepare_session(session)
        await session.query(f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}")
        source = await ask(session)
        if not Offset.at(source, "", 0, None).is_of_log(self._end):
            _LOGGER.warning("%s.%s: another server answers than the one whose log is followed", *self._table)
            return None
        plan = (await read_plans(session, source, [self._table], self._options)).get(
            (self._table.schema, self._table.name)
        )
        if plan is None:
            return None
        primary = plan.shape.primary
        is_known = primary is not None and {name for name, _ in primary.parts} == set(self._key)
        if is_known:
            is_visible = await self._is_visible(session, source)
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys[first : first + _KEYS_AT_ONCE]
                self._take(await self._rows(session, plan, some, is_locking=not is_visible))
        high = await high_mark(session, source)
        until = BinlogPosition(high.file, high.position)
        begin = BinlogPosition(self._end.file, self._end.position)
        found = await TableReader(session, source).statements(begin, until)
        if self._table in touched_by(logged.statement for logged in found if logged.end > begin):
            return None
        if not is_known:
            raise _other_key(str(plan.table))
        return until

    async def _is_visible(self, session: Session, source: Source) -> bool:
        """Wait until a read view shows all changes before the place; False if that cannot be known."""
        place = Place(self._end.file, self._end.position, self._end.gtids)
        until = asyncio.get_running_loop().time() + _SECONDS
        while asyncio.get_running_loop().time() < until:
            low = await low_mark(session, source, knows_gtids=place.gtid_set is not None)
            if low.holds(place):
                return True
            if isinstance(low, FileMark):
                return False
            await asyncio.sleep(0.01)
        return False

    async def _rows(
        self, session: Session, plan: ReadPlan, keys: Sequence[Key], *, is_locking: bool
    ) -> pa.Table:
        sql = keys_sql(plan, [tuple(self._logged(plan, key)) for key in keys], self._key)
        if is_locking:
            # A commit writes the log first: it keeps the row locked until the table shows the change.
            await session.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            await session.query("START TRANSACTION")
            sql += " LOCK IN SHARE MODE"
        else:
            await session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        plan.select.check(await session.start_rows(sql, SILENCE))
        chunk, rows = Chunk(session, plan.select, SILENCE, KeyRange(), None), UndecodedRows()
        while await chunk.read_undecoded(rows):
            pass
        await session.query("COMMIT")
        schema = kept_schema(plan.table)
        return self._changes(kept_rows(plan.select.batches().batch(rows), schema), keys)

    def _logged(self, plan: ReadPlan, key: Key) -> Iterator[object]:
        """The values of a key as the log has them, or as text that the server compares as such."""
        kinds = {column.name: column.type for column in plan.shape.columns}
        for name, value in zip(self._key, key, strict=True):
            kind = kinds[name]
            if kind == "bit" and isinstance(value, bytes):
                yield int.from_bytes(value)
            elif kind == "decimal" and isinstance(value, str):
                yield Decimal(value)
            elif isinstance(value, list):
                yield ",".join(value)
            elif isinstance(value, datetime):
                yield value.replace(tzinfo=None)
            else:
                yield value

    def _changes(self, rows: pa.Table, keys: Sequence[Key]) -> pa.Table:
        """The rows with exactly these keys as inserts, and deletes of the keys without one."""
        fields = [rows.schema.field(name) for name in self._key]
        columns = [
            pa.array(values, one.type) for values, one in zip(zip(*keys, strict=True), fields, strict=True)
        ]
        wanted = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        # By its collation the server also finds rows whose key only compares as equal.
        numbers = KeyIndex(wanted).find(rows)
        rows = rows.filter(pa.array(numbers >= 0))
        gone = np.setdiff1d(np.arange(len(keys)), numbers)
        return pa.concat_tables(
            [
                self._facts(_widened(wanted.take(pa.array(gone)), rows.schema), "delete"),
                self._facts(rows, "insert"),
            ]
        )

    def _facts(self, rows: pa.Table, op: str) -> pa.Table:
        size, end = rows.num_rows, self._end
        seq = place_number(end.epoch, file_number(end.file), end.position)
        facts = {
            "_op": pa.repeat(op, size),
            "_seq": pa.repeat(pa.scalar(seq, SEQ_TYPE), size),
            "_ts": pa.nulls(size, TIMESTAMP),
            "_absent": pa.nulls(size, _ABSENT),
            "_before": pa.nulls(size, pa.struct([rows.schema.field(name) for name in self._key])),
        }
        for name in (*KEPT_FACTS, "_before"):
            rows = rows.append_column(name, facts[name])
        return rows


def _other_key(name: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"{name}: its primary key was changed before its copy was consistent")


def _widened(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that have only their keys."""
    size = keys.num_rows
    columns = [
        keys[one.name] if one.name in keys.schema.names else pa.nulls(size, one.type) for one in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
