"""Which keys of one table the stream has touched, and what the log says of their rows. Pure: no I/O.

A key is the tuple of the values of the key's columns, exactly as the log has them: no collation is needed, because a
change of letter case is an update from one exact key to another. Touches are kept in segments. A segment begins at a
place of the stream, and a chunk whose low mark holds that place needs the touches from there on only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from protocol.records import record
from protocol.rows.column import ABSENT

from .marks import LOWEST, FileMark, LowMark, Place

Row = tuple[object, ...]
Key = tuple[object, ...]
#: Some columns of a row, by their index.
Part = dict[int, object]


@record(slots=True)
class Touch:
    """What consecutive changes made of one key, folded into one.

    ``row`` is the whole row if the log has shown it whole. Else ``part`` has the columns that the log has shown.
    ``is_gone``: deleted, or moved to another key. ``is_new``: the first change made the row, so a row of this key
    that a chunk has read is that row or a later state of it. ``is_doubtful``: the log does not tell the row's state,
    it must be read again.
    """

    row: Row | None = None
    part: Part | None = None
    is_gone: bool = False
    is_new: bool = False
    is_doubtful: bool = False

    def then(self, later: "Touch") -> "Touch":
        """These changes and then later ones, as one."""
        if later.row is not None or later.is_gone or later.is_doubtful:
            return Touch(later.row, later.part, later.is_gone, self.is_new, later.is_doubtful)
        if later.is_new or self.is_doubtful or self.is_gone:
            # A row that was made again, with columns left out: an older row of the key may be what a chunk has read.
            return Touch(is_new=self.is_new, is_doubtful=True)
        part = later.part or {}
        if self.row is not None:
            return Touch(laid_over(self.row, part), is_new=self.is_new)
        return Touch(part={**(self.part or {}), **part}, is_new=self.is_new)


def written(row: Row) -> Touch:
    """An INSERT, or an update that gives a row this key."""
    return Touch(part=part_of(row), is_new=True) if ABSENT in row else Touch(row, is_new=True)


def changed(row: Row) -> Touch:
    """An update that leaves the key as it was; ``row`` is the after image."""
    return Touch(part=part_of(row)) if ABSENT in row else Touch(row)


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
    """Fold one more change of a key in."""
    before = touched.get(key)
    touched[key] = touch if before is None else before.then(touch)


class Segments:
    """The touches of one table, from the place on from which all of them are known.

    Segments are numbered in the order of the stream; a number stays valid when older segments are dropped.
    """

    def __init__(self, start: Place) -> None:
        self._first = 0
        self._starts = [start]
        self._touched: list[Touched] = [{}]
        # Whether low marks are beginnings of files.
        self._is_coarse = False

    def __len__(self) -> int:
        return sum(map(len, self._touched))

    @property
    def start(self) -> Place:
        """The place from which on all touches are known."""
        return self._starts[0]

    def move(self) -> None:
        """Another server sends the log: positions of the previous one mean nothing, GTIDs still do."""
        self._starts = [start if start is LOWEST else replace(start, file="") for start in self._starts]

    def add(self, touched: Mapping[Key, Touch]) -> None:
        """Add the touches of a transaction that has ended."""
        newest = self._touched[-1]
        for key, touch in touched.items():
            add_touch(newest, key, touch)

    def cut(self, place: Place) -> None:
        """Begin a new segment at this place, behind all touches so far, unless no low mark tells it from the last."""
        if self._is_coarse and place.file == self._starts[-1].file:
            return
        if self._touched[-1]:
            self._starts.append(place)
            self._touched.append({})

    def lay_before(self, touched: Touched, start: Place) -> None:
        """Add touches from before the first segment, read from the log separately; ``start`` is their beginning."""
        self._starts[0] = start
        for key, touch in self._touched[0].items():
            add_touch(touched, key, touch)
        self._touched[0] = touched

    def resolve(self, known: Mapping[Key, Touch]) -> None:
        """Replace doubtful touches by these, as far as they say the whole row."""
        for touched in self._touched:
            for key, touch in known.items():
                if key in touched and touched[key].is_doubtful and (touch.row is not None or touch.is_gone):
                    touched[key] = touch

    def restart(self) -> None:
        """Forget all touches: a statement has ended that waited until all of them were visible (DDL of the table)."""
        self._first += len(self._starts)
        self._starts, self._touched = [LOWEST], [{}]

    def covering(self, low: LowMark) -> int | None:
        """The newest segment before whose beginning everything is visible; None if there is none yet."""
        self._is_coarse = isinstance(low, FileMark)
        for number in range(len(self._starts) - 1, -1, -1):
            start = self._starts[number]
            if start is LOWEST or low.holds(start):
                return self._first + number
        return None

    def drop_before(self, number: int) -> None:
        """Forget the segments that no chunk needs any more."""
        dropped = min(number - self._first, len(self._starts) - 1)
        if dropped > 0:
            del self._starts[:dropped], self._touched[:dropped]
            self._first += dropped

    def touch(self, key: Key, number: int) -> Touch | None:
        """What happened to a key from a segment on; None if nothing did."""
        found: Touch | None = None
        for touched in self._touched[max(number - self._first, 0) :]:
            touch = touched.get(key)
            if touch is not None:
                found = touch if found is None else found.then(touch)
        return found


def correct(rows: Sequence[Row], keys: Sequence[Key], segments: Segments, number: int) -> "Corrected":
    """Bring the rows of a chunk to the stream's place: all touches from segment ``number`` on are laid over them."""
    corrected = Corrected([], [], 0)
    for row, key in zip(rows, keys, strict=True):
        touch = segments.touch(key, number)
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


def correct_wanted(
    wanted: Sequence[Key], found: Mapping[Key, Row], segments: Segments, number: int
) -> "Corrected":
    """Bring rows that were read again to the stream's place. ``wanted`` has all their keys, ``found`` those read."""
    corrected = Corrected([], [], 0)
    for key in wanted:
        row, touch = found.get(key), segments.touch(key, number)
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
