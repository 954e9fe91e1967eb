"""The barrier around one SELECT: which steps a reader takes, in which order, and what it has to wait for. Pure.

    LOW    read the low mark L again and again, until everything before a known segment of touches is within L
    OPEN   open a read view, and name the table in it, so that no DDL comes between the view and the rows
    HIGH   read the log's position: nothing after it is visible in the view
    READ   read the rows
    CLOSE  end the read view

The rows then wait until the stream has reached the high mark. They are corrected by all touches from the segment on.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Literal

from protocol.rows.table import Table

from .marks import LowMark, Place
from .touches import Key, Row, Segments, Touch

#: A bound of a chunk as the server gave it: the bytes of the key's columns.
Bound = tuple[bytes, ...]
#: Which rows a window reads: see ``Window``.
What = Literal["first", "chunk", "keys", "table"]


class Step(Enum):
    """What a reader has to do next."""

    LOW = "read the low mark"
    OPEN = "open a read view"
    HIGH = "read the position of the log"
    READ = "read"
    CLOSE = "end the read view"


_ORDER = (Step.LOW, Step.OPEN, Step.HIGH, Step.READ, Step.CLOSE)
# A read with locks sees what is committed while it runs.
_LOCKING_ORDER = (Step.LOW, Step.OPEN, Step.READ, Step.HIGH, Step.CLOSE)


class Window:
    """One read of a table; ``what`` says which rows are read.

    ``"first"``: the table's first rows and, if there are more, its largest key as ``upto``. ``"chunk"``: the rows
    after ``after`` up to ``upto``. ``"keys"``: the rows with the keys ``wanted``. ``"table"``: all rows of a table
    without a key. ``is_void``: the result must not be used (DDL, a lost connection). ``is_locking``: rows are read
    with shared locks, not in a read view.
    """

    def __init__(
        self,
        what: What,
        segments: Segments,
        after: Bound | None,
        upto: Bound | None,
        wanted: Sequence[Key] = (),
    ) -> None:
        self.what = what
        self.after = after
        self.upto = upto
        self.wanted = tuple(wanted)
        self.table: Table | None = None
        self.key_indexes: tuple[int, ...] = ()
        self.rows: Sequence[Row] = []
        self.end: Bound | None = None
        self.high: Place | None = None
        self.segment: int | None = None
        #: The newest segment of touches before the read view was opened.
        self.opened = segments.newest
        self.is_void = False
        self.is_locking = False
        self._segments = segments
        self._done = 0

    @property
    def step(self) -> Step | None:
        """The next step; None if all are done, or the window is void."""
        if self.is_void or self._done == len(_ORDER):
            return None
        return (_LOCKING_ORDER if self.is_locking else _ORDER)[self._done]

    @property
    def is_read(self) -> bool:
        """Whether the rows are there."""
        return self._done == len(_ORDER)

    def begin_again(self) -> None:
        """Go back to the first step, as nothing was read."""
        if not self.is_void:
            self._done, self.segment, self.high = 0, None, None

    def take_low(self, low: LowMark) -> bool:
        """Take the low mark; False if touches before it are unknown: read it again a little later."""
        if not self._expects(Step.LOW):
            return True
        self.segment = self._segments.covering(low)
        if self.segment is None:
            return False
        self._done += 1
        return True

    def take_view(self) -> None:
        """Note that the read view is open."""
        if not self._expects(Step.OPEN):
            return
        self._done += 1

    def take_high(self, high: Place) -> None:
        """Take the position of the log, read after the view was opened."""
        if not self._expects(Step.HIGH):
            return
        self.high = high
        self._done += 1

    def take_rows(
        self,
        table: Table,
        key_indexes: tuple[int, ...],
        rows: Sequence[Row],
        end: Bound | None,
        upto: Bound | None = None,
    ) -> None:
        """Take the rows. ``end`` is where the next chunk begins; None if nothing is left.

        The first rows come with the table's largest key as ``upto``; None if they are all of it.
        """
        if not self._expects(Step.READ):
            return
        if self.what == "first":
            self.upto = upto
        self.table, self.key_indexes, self.rows, self.end = table, key_indexes, rows, end
        self._done += 1

    def close(self) -> None:
        """Note that the read view has ended."""
        if not self._expects(Step.CLOSE):
            return
        self._done += 1

    def is_due(self, place: Place) -> bool:
        """Whether the stream, at this place, has all that the view may show."""
        return self.is_read and not self.is_void and self.high is not None and place.has_reached(self.high)

    def touch(self, key: Key) -> Touch | None:
        """The changes of a key that the rows may lack; None if there are none."""
        assert self.segment is not None
        return self._segments.touch(key, self.segment, self.opened)

    def _expects(self, step: Step) -> bool:
        """Whether this is the next step; False if the window has become void while the step was done."""
        if self.is_void:
            return False
        if self.step is not step:
            raise RuntimeError(f"{step} out of order: the next step is {self.step}")
        return True
