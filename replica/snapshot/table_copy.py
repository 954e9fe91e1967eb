"""The copy of one table: which window comes next, and what a window that is due gives the consumer. Pure: no I/O.

A table with a key is copied in this order: its first rows, with which its largest key is fixed, so that a growing
table ends; chunk after chunk up to that key; and again and again the rows that the log does not show whole. The copy
is complete when all of that has been delivered. Chunks are read ahead of their delivery and delivered in order.
"""

from collections.abc import Container, Mapping, Sequence

from protocol.records import record, replace
from protocol.rows.table import Table

from .marks import Place
from .touches import NEWEST_KEYS, Key, Moved, Row, Segments, Touch, correct, correct_wanted
from .transaction_touches import WHOLE_TABLE, KeyColumns, no_key
from .window import Bound, Window

#: More keys than this are not read one by one: the table is copied again from its beginning. Each transaction that
#: adds one goes through all of them.
MOST_AGAIN = 2_000
#: How many chunks of one table are read and not yet delivered.
_AHEAD = 4


@record(slots=True, frozen=True)
class TableProgress:
    """How far the delivery of a table has come: this is what a checkpoint keeps.

    ``after`` is the bound up to which rows were delivered, ``upto`` the table's largest key when its copy began (both
    None: not begun), ``again`` has keys whose rows are to be read again, ``rows`` counts delivered rows.
    ``is_read``: the last chunk has been delivered. ``is_whole``: the copy is complete. ``is_void``: the copy begins
    anew, and the consumer has to hear it before anything is read.
    """

    after: Bound | None = None
    upto: Bound | None = None
    again: tuple[Key, ...] = ()
    rows: int = 0
    is_read: bool = False
    is_whole: bool = False
    is_void: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether there are bounds or keys, which mean nothing for another key of the table."""
        return not self.is_whole and (self.upto is not None or self.is_read or bool(self.again))

    def anew(self) -> "TableProgress":
        """The progress of a copy that begins anew."""
        return TableProgress(rows=self.rows, is_void=True)

    def with_again(self, keys: Sequence[Key]) -> "TableProgress":
        """The same with more keys to read again; too many begin the table anew."""
        again = dict.fromkeys((*self.again, *keys))
        if len(again) > MOST_AGAIN:
            return self.anew()
        return replace(self, again=tuple(again)) if len(again) != len(self.again) else self

    def with_moved(self, moved: Moved, touched: Container[Key], *, is_reading: bool) -> "TableProgress":
        """The same with rows that a transaction has moved to these keys. ``touched``: all keys that it touched.

        The consumer may not have such a row, and then the log does not give it: it is read by its key. It has all
        rows once the last chunk has been delivered, but for those that are to be read again. As long as the largest
        key is unknown and ``is_reading`` is false, moved rows are read with all the others, if they are visible by
        then. A low mark that is the beginning of a file does not tell that, so the newest are read by their keys.
        """
        if self.upto is None and not self.is_read and not is_reading:
            before = dict.fromkeys(self.again)
            newest = (*(key for key in before if key not in moved), *moved)[-NEWEST_KEYS:]
            return replace(self, again=newest) if newest != self.again else self
        if self.is_read:
            return self.with_again(_moved_on(self.again, moved, touched))
        return self.with_again(tuple(moved))

    def from_place(self) -> "TableProgress":
        """The progress for a copy that goes on from a checkpoint, where nothing is being read."""
        return self.with_moved({}, (), is_reading=False)


def _moved_on(again: Sequence[Key], moved: Moved, touched: Container[Key]) -> Sequence[Key]:
    """Keys to which rows have moved from keys that are to be read again."""
    if not again or not moved:
        return ()
    known, is_touched = dict.fromkeys(again), any(key in touched for key in again)
    left = dict(moved)
    while found := [
        key
        for key, before in left.items()
        if (is_touched if not before else any(one in known for one in before))
    ]:
        for key in found:
            known[key] = None
            del left[key]
    return tuple(known)


@record(slots=True)
class Delivery:
    """The ``rows`` of ``table`` from a window that is due, and the table's progress once they are done."""

    table: Table
    rows: Sequence[Row]
    behind: TableProgress


@record(slots=True)
class Counts:
    """Numbers for the status: delivered chunks, and those of which a row was touched.

    ``anew``, for a warning: how often all that was read of the table was in vain.
    """

    chunks: int = 0
    corrected: int = 0
    anew: int = 0


class TableCopy:
    """The copy of one table. ``start`` is the place from which on its touches are known."""

    def __init__(self, key: KeyColumns, start: Place, progress: TableProgress | None = None) -> None:
        self.key = key
        self.segments = Segments(start)
        self.progress = progress or TableProgress()
        self.counts = Counts()
        self.is_dropped = False
        #: Counts the statements that may have changed the table's columns.
        self.shape_number = 0
        #: How often in a row rows that are read again by their keys were not visible yet.
        self.fruitless = 0
        #: Keys of rows that came before ``start``: the first rows are read when these are visible.
        self.awaited: tuple[Key, ...] = ()
        self._table: Table | None = None
        # A list: an empty deque has room for 64, and there may be 10,000 tables.
        self._chunks: list[Window] = []
        self._again: Window | None = None
        self._covering = 0
        # Whether all touches are known from the statement on that began the copy anew, and those before are visible.
        self._is_settled = False

    def goes_on_by(self, key: KeyColumns) -> bool:
        """Whether the copy's bounds belong to this key. Without bounds the types of its columns may differ."""
        if self.key.names != key.names or (self.progress.is_begun and self.key.order != key.order):
            return False
        self.key.order = key.order
        return True

    @property
    def table(self) -> Table | None:
        """The table as its newest window has read it."""
        return self._table

    @property
    def in_flight(self) -> int:
        """How many windows are open, or hold rows that were not delivered."""
        return len(self._chunks) + (self._again is not None)

    @property
    def high_marks(self) -> list[Place]:
        """The ends of the log for which windows in flight wait."""
        return [window.high for window in self._windows if window.high is not None]

    @property
    def _windows(self) -> list[Window]:
        return [*self._chunks, *([] if self._again is None else [self._again])]

    @property
    def is_reading(self) -> bool:
        """Whether a chunk is being read, or waits for the stream."""
        return bool(self._chunks)

    @property
    def awaits_file(self) -> int:
        """How many rows wait for the log's next file: see ``Segments.awaits_file``."""
        return sum(map(self.segments.awaits_file, self.progress.again))

    @property
    def waits(self) -> bool:
        """Whether its first rows are to be read next."""
        progress = self.progress
        is_begun = progress.is_read or progress.is_void or progress.upto is not None or self.is_reading
        return bool(self.key.names) and not (is_begun or self.is_dropped)

    # Reading

    def await_rows(self, made: Sequence[Key]) -> None:
        """Have the first rows wait for rows of these keys, which transactions before the first touches made."""
        is_begun = self.progress.is_read or self.progress.upto is not None
        self.awaited = () if is_begun else tuple(key for key in made if not self.segments.has(key))

    def add_touches(self, touched: Mapping[Key, Touch], file: str) -> None:
        """Add the touches of a transaction that has ended in a log file. What it has touched was visible before."""
        self.segments.add(touched, file)
        if self.awaited:
            self.awaited = tuple(key for key in self.awaited if key not in touched)

    def next_window(self, place: Place, progress: TableProgress) -> Window | None:
        """The next window to read, now that the stream is at ``place``; None if none can be read now.

        ``progress`` is that behind the rows that the consumer has at the moment.
        """
        if progress.is_whole or progress.is_void or self.progress.is_void or self.is_dropped:
            return None
        self.segments.enter(place)
        window = self._window(progress)
        if window is not None:
            self.segments.cut(place)
            window.opened = self.segments.newest
        return window

    def _window(self, progress: TableProgress) -> Window | None:
        if self._again is None and (progress.upto is not None or progress.is_read):
            wanted = [key for key in progress.again if not self.segments.awaits_file(key)]
            if wanted:
                self._again = Window("keys", self.segments, None, None, wanted)
                return self._again
        if progress.is_read or len(self._chunks) >= _AHEAD:
            return None
        last = self._chunks[-1] if self._chunks else None
        if last is not None and not (last.is_read and last.end is not None):
            return None
        if not self.key.names:
            window = Window("table", self.segments, None, None)
        elif last is not None:
            window = Window("chunk", self.segments, last.end, last.upto)
        elif progress.upto is None:
            window = Window("first", self.segments, None, None)
        else:
            window = Window("chunk", self.segments, progress.after, progress.upto)
        self._chunks.append(window)
        return window

    def void(self) -> None:
        """No window in flight may be used: read all of them anew, from the last delivered chunk on."""
        for window in self._windows:
            window.is_void = True
        self._chunks.clear()
        self._again = None

    def restart(self, *, is_settled: bool = False) -> None:
        """Copy the table again from its beginning, also if it is whole.

        ``is_settled``: because of a statement that waited for all transactions on the table (``altered``).
        """
        self.void()
        self._is_settled = is_settled
        self.counts.anew += 1
        self.progress = self.progress.anew()

    def begin_anew(self, place: Place, *, is_followed: bool) -> TableProgress:
        """The progress once the consumer knows, at ``place``, that the copy begins anew; touches count from there.

        Those of a table whose copy was complete were not kept. Windows in flight wait for touches of the old place.
        A table that was dropped may be there again. ``is_followed``: touches are kept since ``restart``. Without any
        since a statement, those from before it are not needed: all of that is visible.
        """
        self.void()
        self.is_dropped = False
        if not (self._is_settled and is_followed) or len(self.segments):
            self.segments = Segments(place)
        self.awaited = ()
        self._covering = 0
        return replace(self.progress, is_void=False)

    def perhaps_altered(self) -> None:
        """Read windows in flight anew, as a statement may have changed the columns of the table."""
        self.void()
        self.shape_number += 1

    def altered(self) -> None:
        """A statement has changed the table, and waited for all transactions on it: their touches are visible."""
        self.perhaps_altered()
        self.segments.restart()

    def forget(self, window: Window) -> None:
        """A window could not be read: read it, and the chunks behind it, anew."""
        if window is self._again or window in self._chunks:
            self.void()

    def dropped(self) -> None:
        """Note that the table no longer exists."""
        self.void()
        self.is_dropped = True

    # Delivering

    def deliver(self, place: Place) -> Delivery | None:
        """The rows of a window that is due at ``place``, brought to that place; None if none is due.

        The caller sets ``progress`` to the delivery's ``behind`` when the consumer is done with the rows.
        """
        self._forget_touches()
        again = self._again
        if again is not None and again.is_due(place):
            self._again = None
            delivery = self._deliver_again(again)
            if delivery is not None:
                return delivery
        while self._chunks and self._chunks[0].is_due(place):
            window = self._chunks.pop(0)
            if window.what == "first" and not window.rows:
                self._take_empty(window)
            elif window.what == "table":
                delivery = self._deliver_table(window)
                if delivery is not None:
                    return delivery
            else:
                return self._deliver_chunk(window)
        return None

    def is_complete(self) -> bool:
        """Whether everything has been delivered, and only the end is to be told."""
        progress = self.progress
        if progress.is_whole:
            return False
        return self.is_dropped or (progress.is_read and not progress.again and self._again is None)

    def _take_empty(self, window: Window) -> None:
        """Note that the table is empty, so that there is nothing to deliver."""
        self._check_touches(window)
        self._table = window.table
        self.progress = replace(self.progress, is_read=True)

    def _deliver_chunk(self, window: Window) -> Delivery:
        keys = [self._key(window, row) for row in window.rows]
        corrected = correct(window.rows, keys, window.touch)
        self.counts.corrected += bool(corrected.touched)
        behind = replace(self.progress, after=window.end, upto=window.upto, is_read=window.end is None)
        return self._delivery(window, corrected.rows, behind.with_again(corrected.again))

    def _deliver_again(self, window: Window) -> Delivery | None:
        found = {self._key(window, row): row for row in window.rows}
        corrected = correct_wanted(window.wanted, found, window.touch)
        self.fruitless += 1
        if len(corrected.again) == len(window.wanted):
            return None
        self.fruitless = 0
        self.counts.corrected += bool(corrected.touched)
        wanted = set(window.wanted)
        left = tuple(key for key in self.progress.again if key not in wanted)
        behind = replace(self.progress, again=left)
        return self._delivery(window, corrected.rows, behind.with_again(corrected.again))

    def _deliver_table(self, window: Window) -> Delivery | None:
        if window.touch(()) is not None:
            # Rows without a key cannot be corrected: read them again, until nothing touches them meanwhile.
            window.is_void = True
            self.counts.anew += 1
            return None
        return self._delivery(window, window.rows, replace(self.progress, is_read=True))

    def _delivery(self, window: Window, rows: Sequence[Row], behind: TableProgress) -> Delivery:
        self._check_touches(window)
        assert window.table is not None
        self._table = window.table
        self.counts.chunks += 1
        behind = replace(behind, rows=behind.rows + len(rows))
        return Delivery(window.table, rows, behind)

    def _check_touches(self, window: Window) -> None:
        """Raise if the log has changes of unknown rows, and no DDL after them that would explain it."""
        if self.key.names and window.table is not None and window.touch(WHOLE_TABLE) is not None:
            raise no_key((window.table.schema, window.table.name))

    def _key(self, window: Window, row: Row) -> Key:
        return tuple([row[index] for index in window.key_indexes])

    def _forget_touches(self) -> None:
        """Drop touches that no window needs, neither in flight nor later, as low marks never go back."""
        windows = self._windows
        segments = [window.segment for window in windows if window.segment is not None]
        if segments:
            self._covering = max(self._covering, min(segments))
            self.segments.drop_before(self._covering)
        self.segments.fold_before(min((window.opened for window in windows), default=self.segments.newest))
