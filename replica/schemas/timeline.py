"""The history of all tables of a source: for each table its shapes, each valid from a place in the log on.

A shape is valid from its place on, which is the end of the statement that made it. The history may be ahead of the
reader: statements that it has seen before change nothing. It does no input or output. A store keeps its JSON lines,
all at once (``to_lines``) or as they come (``change_lines``, ``head_line``).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition, is_older
from protocol.records import replace

from ..sql.token_reader import TableName
from .catalog import Catalog, Listed, Lost, Statement, TableChange, Unknown, other_tables
from .log_places import Place, file_of, place_of
from .shape import ColumnShape, Shape
from .shared import Shared
from .stored_lines import StoredLines

#: A table at a place: its shape, ``Unknown`` if its trail is lost, or None if it does not exist.
State = Shape | Unknown | None


class Timeline:
    """The states of one table, each from a place on; places ascend.

    A table that is made and dropped each minute has 86,000 states in a month, so adding one copies none of them.
    """

    __slots__ = ("_places", "_states")

    def __init__(self, place: Place, state: State | Listed) -> None:
        self._places: list[Place] = [place]
        self._states: list[State | Listed] = [state]

    def __iter__(self) -> Iterator[tuple[Place, State]]:
        return iter(zip(self._places, map(_known, self._states), strict=True))

    def __len__(self) -> int:
        return len(self._places)

    @property
    def changes(self) -> list[Place]:
        """The places at which the state changes."""
        return self._places[1:]

    @property
    def last_place(self) -> Place:
        """The place from which on ``last`` is valid."""
        return self._places[-1]

    @property
    def made(self) -> Iterator[Shape]:
        """The shapes that statements made, or that were read from a store."""
        return (state for state in self._states if isinstance(state, Shape))

    @property
    def last(self) -> State:
        """The state at the end of what is known."""
        return _known(self._states[-1])

    def at(self, place: Place) -> State:
        """The state at a place, which is not before the first one."""
        return _known(self._states[bisect_right(self._places, place) - 1])

    def next_place(self, place: Place) -> Place | None:
        """The first place behind this one that a state is valid from."""
        index = bisect_right(self._places, place)
        return self._places[index] if index < len(self._places) else None

    def put(self, place: Place, state: State) -> None:
        """Set the state from a place on, up to the next known place; it replaces a state of the same place."""
        index = bisect_right(self._places, place)
        if index and self._places[index - 1] == place:
            self._states[index - 1] = state
        else:
            self._places.insert(index, place)
            self._states.insert(index, state)

    def prune(self, place: Place) -> None:
        """Drop the states that end at a place or before it."""
        begin = max(bisect_right(self._places, place) - 1, 0)
        del self._places[:begin]
        del self._states[:begin]

    def change_at(self, place: Place) -> tuple[State, State] | None:
        """The states before and from a place on, if the timeline has an entry there that is not its first."""
        index = bisect_right(self._places, place) - 1
        if index < 1 or self._places[index] != place:
            return None
        return _known(self._states[index - 1]), _known(self._states[index])


def _known(state: State | Listed) -> State:
    return state.state() if isinstance(state, Listed) else state


class SchemaHistory:
    """Timelines of all tables of one source's log, from a baseline on.

    ``source`` identifies the log: the source's server_uuid or server_id, as checkpoints have it. ``catalog`` is the
    state at ``head``, the place behind the last statement.
    """

    def __init__(
        self,
        source: str,
        begin: BinlogPosition,
        catalog: Catalog | None = None,
        *,
        head: BinlogPosition | None = None,
        timelines: Mapping[TableName, Timeline] | None = None,
        folds_names: bool = False,
        lines: StoredLines | None = None,
    ) -> None:
        """``catalog`` is valid at ``begin``; with ``timelines``, those of a store, it is valid at ``head``.

        ``folds_names``: lower_case_table_names of the source is 1 or 2, and tables have their names in small letters.
        ``lines`` are those of the store.
        """
        self.source, self.folds_names = source, folds_names
        # The newest file with a known time of its beginning, and that time: see ``stored_log``.
        self.begun: tuple[str, int] | None = None
        self._lines = lines or StoredLines()
        self._is_begun_written = True
        self.catalog = Catalog() if catalog is None else catalog
        self._base, self._begin = place_of(begin)
        self._head = self._begin if head is None else self._place(head)
        if timelines is None:
            timelines = {table: Timeline(self._begin, state) for table, state in self.catalog.listed.items()}
        self._timelines = dict(timelines)
        # The tables that the statement before a place has changed. A stream that begins in the past asks for them at
        # each statement of the log; walking over 20,000 tables took 5 ms each time.
        self._changed: dict[Place, dict[TableName, None]] = {}
        for table, timeline in self._timelines.items():
            for place in timeline.changes:
                self._changed.setdefault(place, {})[table] = None
        self._note_renames()

    def _note_renames(self) -> None:
        """Tell the catalog the tables whose last statement was a RENAME TABLE: it made some, and ended others."""
        for place, tables in self._changed.items():
            changes = [
                (table, self._timelines[table].change_at(place)) for table in tables if len(tables) > 1
            ]
            made = [
                table for table, change in changes if change and change[0] is None and change[1] is not None
            ]
            ended = {table: change[0] for table, change in changes if change and change[1] is None}
            if not (made and ended):
                continue
            self.catalog.renamed.update(table for table in made if self._timelines[table].last_place == place)
            for table, before in ended.items():
                if before is not None and self._timelines[table].last_place == place:
                    self.catalog.left[table] = before

    @property
    def begin(self) -> BinlogPosition:
        """The first place that the history knows tables for."""
        return self._position(self._begin)

    @property
    def head(self) -> BinlogPosition:
        """The place behind the last statement, or of the last baseline."""
        return self._position(self._head)

    @property
    def tables(self) -> dict[TableName, Timeline]:
        """The timelines, for looking."""
        return dict(self._timelines)

    @property
    def size(self) -> int:
        """How many states it keeps of all tables."""
        return sum(map(len, self._timelines.values()))

    def places_of(self, table: TableName) -> list[BinlogPosition]:
        """The places at which the table has changed, in the order of the log; the first begins its history."""
        timeline = self._timelines.get(table, ())
        return [self._position(place) for place, _ in timeline]

    def next_change(self, table: TableName, position: BinlogPosition) -> BinlogPosition | None:
        """The first of ``places_of`` behind a position; None if there is none."""
        timeline = self._timelines.get(table)
        place = None if timeline is None else timeline.next_place(self._place(position))
        return None if place is None else self._position(place)

    def shape_at(self, table: TableName, position: BinlogPosition) -> State:
        """A table at a place: its shape, ``Unknown``, or None if there is no such table there.

        Raises ``ConfigurationError`` for a place of a log with another base name.
        """
        place = self._place(position)
        if place < self._begin:
            return Unknown(f"the schema history begins at {self.begin}, behind {position}")
        timeline = self._timelines.get(table) or self._timelines.get(other_tables(table.schema))
        return None if timeline is None else timeline.at(place)

    def shape_before(self, table: TableName, position: BinlogPosition) -> State:
        """The state of a table right before a place, after all statements that end before it."""
        return self.shape_at(table, replace(position, position=position.position - 1))

    def apply(self, statement: Statement, position: BinlogPosition) -> list[TableChange]:
        """Apply a statement; ``position`` is the end of its event. Returns the changed tables.

        A statement at or before ``head`` was applied earlier: its changes are returned again, without names of
        renames.
        """
        place = self._place(position)
        if place <= self._head:
            return list(self._changes_at(place))
        changes = self.catalog.apply(statement)
        self._head = place
        for change in changes:
            self._put(change.table, place, change.after)
        return changes

    def set_lines(self, table: TableName, position: BinlogPosition) -> Iterator[str]:
        """The lines to write after ``to_lines()`` once ``set_at`` has set the table from this place on."""
        first, *later = self._timelines[table]
        place = self._place(position)
        yield self._table_line(table, [first, *((at, state) for at, state in later if at >= place)], {})
        yield self.head_line()

    def advance(self, position: BinlogPosition) -> None:
        """Move ``head`` to a place up to which the log was followed, without a statement in between."""
        self._head = max(self._head, self._place(position))

    def head_line(self) -> str:
        """The line to write after ``to_lines()`` once ``advance`` or ``note_begun`` has changed something."""
        return self._lines.next(self._head_row())

    def _head_row(self) -> dict[str, object]:
        begun = {} if self._is_begun_written else {"begun": self.begun}
        self._is_begun_written = True
        return {"head": str(self.head), **begun}

    def note_begun(self, file: str, begun: int) -> bool:
        """Note when the source began a file. Returns whether that is news for the store."""
        before = self.begun
        if before == (file, begun) or (before is not None and is_older(file, before[0])):
            return False
        self.begun, self._is_begun_written = (file, begun), False
        return True

    def set_at(self, table: TableName, position: BinlogPosition, state: State) -> None:
        """Set the state of a table from a place on, up to the next known place: it was read anew, or is lost."""
        place = self._place(position)
        if table not in self._timelines:
            self._timelines[table] = Timeline(self._begin, Unknown(f"{table} was first read at {position}"))
        self._put(table, place, state)
        self.catalog.set(table, self._timelines[table].last)

    def has_lost(self, table: TableName, position: BinlogPosition) -> bool:
        """Whether only an older part of the log can tell the table's shape at a place."""
        return isinstance(self.shape_at(table, position), Lost)

    def join(self, later: "SchemaHistory", *, has_gap: bool = True) -> None:
        """Take over another history of the same log, from the other history's beginning on.

        Without a gap between them, what this one knows up to there stays where the other one has lost it.
        """
        for table in later.tables | self._timelines:
            named, others = later._timelines.get(table), later._timelines.get(other_tables(table.schema))
            for place, state in named or others or Timeline(later._begin, None):
                if place <= later._begin and isinstance(state, Lost) and not has_gap:
                    known = self.shape_at(table, later.begin)
                    if isinstance(known, Shape) or (known is None and named is None):
                        continue
                self._join(table, max(place, later._begin), state)
        self._head = max(self._head, later._head)
        self.begun = later.begun or self.begun
        self.catalog, self.folds_names = later.catalog, later.folds_names

    def prune(self, position: BinlogPosition) -> None:
        """Forget all that readers from a place on do not need."""
        place = self._place(position)
        for table, timeline in list(self._timelines.items()):
            timeline.prune(place)
            if len(timeline) == 1 and timeline.last is None:
                del self._timelines[table]
                self.catalog.left.pop(table, None)
        self._changed = {known: tables for known, tables in self._changed.items() if known > place}
        self._begin = max(self._begin, min(place, self._head))
        self.catalog.share_only(state for timeline in self._timelines.values() for state in timeline.made)

    def _put(self, table: TableName, place: Place, state: State) -> None:
        timeline = self._timelines.get(table)
        if timeline is None:
            self._timelines[table] = timeline = Timeline(self._begin, None)
        timeline.put(place, self.catalog.shared(state))
        self._changed.setdefault(place, {})[table] = None

    def _join(self, table: TableName, place: Place, state: State) -> None:
        timeline = self._timelines.get(table)
        # A shape that is found later for one that is not known, or not whole, is valid up to the next statement about
        # the table.
        is_known = state is None or (isinstance(state, Shape) and state.is_whole)
        if not is_known or (None if timeline is None else timeline.at(place)) != state:
            self._put(table, place, state)

    def _changes_at(self, place: Place) -> Iterator[TableChange]:
        for table in self._changed.get(place, ()):
            timeline = self._timelines.get(table)
            found = None if timeline is None else timeline.change_at(place)
            if found is not None:
                yield TableChange(table, *found)

    def _place(self, position: BinlogPosition) -> Place:
        base, place = place_of(position)
        if base != self._base:
            raise ConfigurationError(
                f"{position} is no place of the log {self._base!r} that the schema history is of"
            )
        return place

    def _position(self, place: Place) -> BinlogPosition:
        return file_of(self._base, place)

    # JSON lines.

    def to_lines(self) -> Iterator[str]:
        """The whole history, a JSON text a line."""
        self._is_begun_written = self.begun is None
        yield self._lines.first(
            {
                "source": self.source,
                "begin": str(self.begin),
                "head": str(self.head),
                "folds_names": self.folds_names,
                "schemas": dict(self.catalog.schemas),
            }
        )
        columns: dict[ColumnShape, int] = {}
        numbers: dict[Shape, int] = {}
        for table, timeline in self._timelines.items():
            for _, state in timeline:
                if isinstance(state, Shape) and state not in numbers:
                    new = [column for column in state.columns if column not in columns]
                    if new:
                        yield self._lines.next({"columns": [column.to_dict() for column in new]})
                    for column in new:
                        columns[column] = len(columns)
                    numbers[state] = len(numbers)
                    shape = state.to_dict([columns[column] for column in state.columns])
                    yield self._lines.next({"shape": shape})
            yield self._table_line(table, timeline, numbers)
        yield self.head_line()

    def change_lines(self, changes: Iterable[TableChange]) -> Iterator[str]:
        """What to write behind ``to_lines()`` once ``apply`` has returned these changes.

        The last line makes the others valid: whoever was killed in between has not done the statement.
        """
        for change in changes:
            yield self._table_line(change.table, [(self._head, change.after)], {})
        # All schemas would be 24 bytes each, with every statement.
        changed, schemas = self.catalog.changed_schemas, self.catalog.schemas
        said = {
            "new_schemas": {schema: schemas[schema] for schema in changed if schema in schemas},
            "gone_schemas": [schema for schema in changed if schema not in schemas],
        }
        said = {name: value for name, value in said.items() if value}
        yield self._lines.next({**self._head_row(), **said})

    def _table_line(
        self, table: TableName, states: Iterable[tuple[Place, State]], numbers: Mapping[Shape, int]
    ) -> str:
        rows = [[*place, _state(state, numbers)] for place, state in states]
        return self._lines.next({"table": list(table), "states": rows})

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> "SchemaHistory":
        """The reverse of ``to_lines``, with ``change_lines`` behind; ``ConfigurationError`` on anything else."""
        try:
            return _Loader().load(lines)
        except ConfigurationError as error:
            raise ConfigurationError(f"not a schema history: {error}") from error
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise ConfigurationError(f"not a schema history: {type(error).__name__}: {error}") from error


class _Loader:
    """Reads the lines of a history."""

    def __init__(self) -> None:
        self._shared = Shared()
        self._columns: list[ColumnShape] = []
        self._shapes: list[Shape] = []
        self._timelines: dict[TableName, Timeline] = {}
        # The states of statements that are not done before the next head.
        self._changes: list[tuple[TableName, list[Sequence[Any]]]] = []

    def load(self, lines: Iterable[str]) -> SchemaHistory:
        stored = StoredLines()
        rows = stored.read(lines)
        header = next(rows, None)
        if header is None:
            raise ConfigurationError("it is empty")
        begin = BinlogPosition.parse(header["begin"])
        head, schemas, heads, begun = header["head"], dict(header["schemas"]), 0, None
        for row in rows:
            if "columns" in row:
                self._columns += map(ColumnShape.from_dict, row["columns"])
            elif "shape" in row:
                columns = [self._columns[number] for number in row["shape"]["columns"]]
                self._shapes.append(self._shared.shape(Shape.from_dict(row["shape"], columns)))
            elif "table" in row:
                self._load_table(TableName(*row["table"]), row["states"], begin, head)
            else:
                head, heads = row["head"], heads + 1
                begun = row.get("begun", begun)
                if "schemas" in row:
                    # Each statement had all schemas, before there was ``new_schemas``.
                    schemas = dict(row["schemas"])
                schemas.update(row.get("new_schemas", {}))
                for schema in row.get("gone_schemas", ()):
                    schemas.pop(schema, None)
                done, self._changes = self._changes, []
                for table, states in done:
                    self._load_table(table, states, begin, head)
                # What is still behind the head was left by a kill: its statement is followed once more.
                self._changes.clear()
        if stored.needs_end and not heads:
            raise ConfigurationError("its end is missing")
        now = {table: timeline.last for table, timeline in self._timelines.items()}
        history = SchemaHistory(
            str(header["source"]),
            begin,
            Catalog({table: state for table, state in now.items() if state is not None}, schemas),
            head=BinlogPosition.parse(head),
            timelines=self._timelines,
            folds_names=bool(header.get("folds_names", False)),
            lines=stored,
        )
        if begun is not None:
            history.begun = str(begun[0]), int(begun[1])
        return history

    def _load_table(
        self, table: TableName, states: Iterable[Sequence[Any]], begin: BinlogPosition, head: str
    ) -> None:
        known, later = _parted(states, place_of(BinlogPosition.parse(head))[1])
        self._load_states(place_of(begin)[1], table, known)
        if later:
            self._changes.append((table, later))

    def _load_states(self, begin: Place, table: TableName, rows: Iterable[Sequence[Any]]) -> None:
        for number, offset, data in rows:
            place, state = (int(number), int(offset)), self._state(data)
            timeline = self._timelines.get(table)
            if timeline is not None:
                timeline.put(place, state)
            elif place <= begin:
                self._timelines[table] = Timeline(place, state)
            else:
                self._timelines[table] = Timeline(begin, None)
                self._timelines[table].put(place, state)

    def _state(self, state: Any) -> State:
        if state is None:
            return None
        if isinstance(state, int):
            return self._shapes[state]
        if "unknown" in state:
            return (Lost if state.get("is_lost") else Unknown)(str(state["unknown"]))
        return self._shared.shape(Shape.from_dict(state))


def _state(state: State, numbers: Mapping[Shape, int]) -> Any:
    if isinstance(state, Shape):
        return numbers[state] if state in numbers else state.to_dict()
    if state is None:
        return None
    return (
        {"unknown": state.reason, "is_lost": True} if isinstance(state, Lost) else {"unknown": state.reason}
    )


def _parted(states: Iterable[Sequence[Any]], head: Place) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
    """The states of a table up to the head, and those behind it."""
    known: list[Sequence[Any]] = []
    later: list[Sequence[Any]] = []
    for state in states:
        (known if (state[0], state[1]) <= head else later).append(state)
    return known, later
