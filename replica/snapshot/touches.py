"""Which keys of one table the stream has touched, and what the log says of their rows. Pure: no I/O.

A key is the tuple of the values of the key's columns, exactly as the log has them: no collation is needed, because a
change of letter case is an update from one exact key to another. Touches are kept in segments. A segment begins at a
place of the stream, and a chunk whose low mark holds that place needs the touches from there on only.

Of the touches of one key that came before a read view was opened, all but the newest are visible in the view,
whatever the low mark is: the newest one's transaction had to wait for the lock of the row, and InnoDB makes a
transaction visible before it releases its locks (trx0trx.cc: trx_release_impl_and_expl_locks of MySQL 8.0;
lock_trx_release_locks of 5.6, whose read0read.cc looks at the state that it sets; commit_in_memory of MariaDB).
So a row whose state the log does not tell is read once the view is opened, also where low marks stay at the beginning
of the log file. MariaDB ends the implicit lock of an inserted row just before that: then the view has no row of this
key that could be wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from protocol.position import FIRST_POSITION
from protocol.records import record, replace
from protocol.rows.column import ABSENT

from .marks import LOWEST, FileMark, LowMark, Place

#: For each table whose copy has not begun, the keys of so many of its newest rows are kept: the log has brought these
#: rows, and reads may not show them yet.
NEWEST_KEYS: Final = 50

Row = tuple[object, ...]
Key = tuple[object, ...]
#: Some columns of a row, by their index.
Part = dict[int, object]


@record(slots=True)
class Touch:
    """Consecutive changes of one key, folded into one.

    ``row`` is the whole row if the log has shown it whole. Else ``part`` has the columns that the log has shown.
    ``is_gone``: deleted, or moved to another key. ``is_new``: the first change made the row, so a row of this key
    that a chunk has read is that row or a later state of it. ``is_doubtful``: the log does not tell the row's state,
    so it must be read again. ``last``: the changes of the newest transaction alone; None if all are of one.
    """

    row: Row | None = None
    part: Part | None = None
    is_gone: bool = False
    is_new: bool = False
    is_doubtful: bool = False
    last: "Touch | None" = None

    def then(self, later: "Touch") -> "Touch":
        """These changes followed by later ones, folded into one."""
        if later.row is not None or later.is_gone or later.is_doubtful:
            return Touch(later.row, later.part, later.is_gone, self.is_new, later.is_doubtful)
        if later.is_new or self.is_doubtful or self.is_gone:
            # The row was made again, with columns left out, and a chunk may have read an older row of the key.
            return Touch(is_new=self.is_new, is_doubtful=True)
        part = later.part or {}
        if self.row is not None:
            return Touch(laid_over(self.row, part), is_new=self.is_new)
        return Touch(part={**(self.part or {}), **part}, is_new=self.is_new)


def written(row: Row) -> Touch:
    """An INSERT, or an update that gives a row this key."""
    return Touch(part=part_of(row), is_new=True) if ABSENT in row else Touch(row, is_new=True)


def changed(row: Row, generated: Sequence[int] = ()) -> Touch:
    """An update that leaves the key as it was; ``row`` is the after image.

    ``generated`` are columns that may have changed where the image lacks them.
    """
    if ABSENT not in row:
        return Touch(row)
    return Touch(part=dict.fromkeys(generated, ABSENT) | part_of(row))


GONE: Final = Touch(is_gone=True)
DOUBTFUL: Final = Touch(is_doubtful=True)


def part_of(row: Row) -> Part:
    """The columns that an image holds."""
    return {index: value for index, value in enumerate(row) if value is not ABSENT}


def laid_over(row: Row, part: Part) -> Row:
    """The row with some columns replaced."""
    values = list(row)
    for index, value in part.items():
        values[index] = value
    return tuple(values)


Touched = dict[Key, Touch]
Moved = dict[Key, tuple[Key, ...]]


def add_touch(touched: Touched, key: Key, touch: Touch) -> None:
    """Fold in one more change of a transaction."""
    before = touched.get(key)
    touched[key] = touch if before is None else before.then(touch)


def add_transaction(touched: Touched, transaction: Mapping[Key, Touch]) -> None:
    """Fold in the touches of one later transaction, or of several."""
    for key, touch in transaction.items():
        before = touched.get(key)
        if before is None:
            touched[key] = touch
        else:
            touched[key] = folded = before.then(touch)
            folded.last = touch if touch.last is None else touch.last


@record(slots=True)
class _Segment:
    """Touches from the place ``start`` of the stream on, up to the start of the next segment."""

    number: int
    start: Place
    touched: Touched


class Segments:
    """The touches of one table, from the place on from which all of them are known.

    Segments are numbered in the order of the stream. The number of a segment that was dropped or folded into the one
    before it stands for the segment that has its touches, or for the first.
    """

    def __init__(self, start: Place) -> None:
        self._segments = [_Segment(0, start, {})]
        # The log file of the newest touches; empty if it is not known.
        self._file = start.file
        # Whether low marks are beginnings of files.
        self._is_coarse = False

    def __len__(self) -> int:
        return sum(len(segment.touched) for segment in self._segments)

    @property
    def start(self) -> Place:
        """The place from which on all touches are known."""
        return self._segments[0].start

    @property
    def newest(self) -> int:
        """The number of the segment to which touches are added now."""
        return self._segments[-1].number

    def move(self) -> None:
        """Another server sends the log: positions of the previous one mean nothing, GTIDs still do."""
        self._file = ""
        for segment in self._segments:
            if segment.start is not LOWEST:
                segment.start = replace(segment.start, file="")

    def add(self, touched: Mapping[Key, Touch], file: str = "") -> None:
        """Add the touches of a transaction that has ended in a log file."""
        self.enter(Place(file, FIRST_POSITION))
        add_transaction(self._segments[-1].touched, touched)

    def cut(self, place: Place) -> None:
        """Begin a new segment at this place, after all touches so far."""
        if self.enter(place):
            return
        if self._segments[-1].touched:
            self._segments.append(_Segment(self.newest + 1, place, {}))

    def enter(self, place: Place) -> bool:
        """Begin a new segment if the stream is in another log file than before. It begins where the file does."""
        before, self._file = self._file, place.file or self._file
        if before in ("", self._file):
            return False
        self._segments.append(_Segment(self.newest + 1, replace(place, position=FIRST_POSITION), {}))
        return True

    def awaits_file(self, key: Key) -> bool:
        """Whether reading the row of a key is useless until the key is touched again or the log has a new file.

        It is useless if the log does not tell the row's state after the newest touch, and no low mark says whether
        that touch is visible.
        """
        low = FileMark(self._file)
        if not self._is_coarse or not _is_visible(low, self.start):
            return False
        for segment in reversed(self._segments):
            touch = segment.touched.get(key)
            if touch is not None:
                return (touch.last or touch).is_doubtful
            if _is_visible(low, segment.start):
                break
        return False

    def has(self, key: Key) -> bool:
        """Whether a key was touched."""
        return any(key in segment.touched for segment in self._segments)

    def lay_before(self, touched: Touched, start: Place) -> None:
        """Add touches from before the first segment, read from the log separately; ``start`` is their beginning."""
        first = self._segments[0]
        add_transaction(touched, first.touched)
        first.start, first.touched = start, touched

    def resolve(self, known: Mapping[Key, Touch]) -> None:
        """Replace doubtful touches of one transaction by these, where they tell the row's state or a part of it."""
        for segment in self._segments:
            for key, touch in known.items():
                mine = segment.touched.get(key)
                if mine is None or not mine.is_doubtful or mine.last is not None:
                    continue
                if not touch.is_doubtful:
                    segment.touched[key] = touch

    def restart(self) -> None:
        """Forget all touches: a statement has ended that waited until all of them were visible (DDL of the table)."""
        self._segments = [_Segment(self.newest + 1, LOWEST, {})]

    def covering(self, low: LowMark) -> int | None:
        """The newest segment with everything before its beginning visible; None if there is none yet."""
        self._is_coarse = isinstance(low, FileMark)
        for segment in reversed(self._segments):
            if _is_visible(low, segment.start):
                return segment.number
        return None

    def drop_before(self, number: int) -> None:
        """Forget the segments that no chunk needs any more."""
        del self._segments[: self._index(number)]

    def fold_before(self, number: int) -> None:
        """Fold earlier segments into one for each log file: no low mark tells segments of one file apart."""
        if not self._is_coarse:
            return
        end = self._index(number)
        folded = self._segments[:1]
        for segment in self._segments[1:end]:
            if segment.start.file == folded[-1].start.file:
                add_transaction(folded[-1].touched, segment.touched)
            else:
                folded.append(segment)
        self._segments = [*folded, *self._segments[max(end, 1) :]]

    def _index(self, number: int) -> int:
        """The index of the segment that a number stands for."""
        index = len(self._segments) - 1
        while index and self._segments[index].number > number:
            index -= 1
        return index

    def touch(self, key: Key, number: int, opened: int) -> Touch | None:
        """The changes of a key that a read view may lack; None if there are none.

        ``number`` is the segment that the low mark covers. The view was opened when ``opened`` was the newest
        segment: of the touches before it, only the last may be invisible.
        """
        first, split = self._index(number), self._index(opened)
        found: Touch | None = None
        for segment in reversed(self._segments[first:split]):
            before = segment.touched.get(key)
            if before is not None:
                found = before if before.last is None else before.last
                break
        for segment in self._segments[max(first, split) :]:
            touch = segment.touched.get(key)
            if touch is not None:
                found = touch if found is None else found.then(touch)
        return found


def _is_visible(low: LowMark, place: Place) -> bool:
    """Whether everything before a place is visible."""
    return place is LOWEST or low.holds(place)


#: Returns the changes of a key since a read.
TouchOf = Callable[[Key], Touch | None]


def correct(rows: Sequence[Row], keys: Sequence[Key], touch_of: TouchOf) -> "Corrected":
    """Bring the rows of a chunk to the stream's place: the touches of their keys are laid over them."""
    corrected = Corrected([], [], 0)
    for row, key in zip(rows, keys, strict=True):
        touch = touch_of(key)
        if touch is None:
            corrected.rows.append(row)
            continue
        corrected.touched += 1
        if touch.is_doubtful:
            corrected.again.append(key)
        elif touch.row is not None:
            corrected.rows.append(touch.row)
        elif not touch.is_gone:
            corrected.rows.append(laid_over(row, touch.part or {}))
    return corrected


def correct_wanted(wanted: Sequence[Key], found: Mapping[Key, Row], touch_of: TouchOf) -> "Corrected":
    """Bring rows that were read again to the stream's place. ``wanted`` has all their keys, ``found`` those read."""
    corrected = Corrected([], [], 0)
    for key in wanted:
        row, touch = found.get(key), touch_of(key)
        if touch is None:
            if row is not None:
                corrected.rows.append(row)
            continue
        corrected.touched += 1
        if touch.row is not None:
            corrected.rows.append(touch.row)
        elif touch.is_gone:
            continue
        elif row is None or touch.is_doubtful:
            # The row is not visible yet, or it may be an older row of this key.
            corrected.again.append(key)
        else:
            corrected.rows.append(laid_over(row, touch.part or {}))
    return corrected


@record(slots=True)
class Corrected:
    """Rows as they are at the stream's place. ``again``: keys to read again; ``touched``: how many were touched."""

    rows: list[Row]
    again: list[Key]
    touched: int
