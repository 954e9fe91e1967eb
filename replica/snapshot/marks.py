"""Low and high marks: what is known to be visible in the tables, and what may be. Pure: asks no server.

A commit is flushed to the log, perhaps synced and acknowledged, and sent to replicas. Then the engine commits it, and
readers see it. Then its GTID enters ``gtid_executed``. So a log position comes too early to be a low mark ("all of
this is visible"): on a busy server two of three observations miss a commit. It is right as a high mark ("nothing
after this is visible"). Low marks that hold:

    GtidMark   ``gtid_executed`` of MySQL 8.0 and later with GTIDs and binlog_order_commits=ON
    FileMark   the beginning of the current log file, on every server and setting: a new file begins only when all
               commits of the file before it are done (``MYSQL_BIN_LOG::new_file_impl``)
"""

from typing import Final, Protocol

from protocol.gtid import AnyGtidSet, GtidSet
from protocol.position import FIRST_POSITION, file_number
from protocol.records import record


@record(slots=True, frozen=True)
class Place:
    """A place between two transactions of the stream: file, position and, if known, all GTIDs before it."""

    file: str
    position: int
    gtid_set: AnyGtidSet | None = None

    def has_reached(self, high: "Place") -> bool:
        """Whether the stream at this place has read everything before ``high`` in the same server's log."""
        return _order(self) >= _order(high)


class LowMark(Protocol):
    """A set of transactions that are known to be visible."""

    def holds(self, place: Place) -> bool:
        """Whether all transactions before a place of the stream are in the set."""


@record(slots=True, frozen=True)
class GtidMark:
    """The transactions of a GTID set."""

    gtid_set: GtidSet

    def holds(self, place: Place) -> bool:
        """Whether the set has every GTID before the place; False if they are not known."""
        return isinstance(place.gtid_set, GtidSet) and place.gtid_set <= self.gtid_set


@record(slots=True, frozen=True)
class FileMark:
    """All transactions before the beginning of a log file."""

    file: str

    def holds(self, place: Place) -> bool:
        """Whether the place is at or before the beginning of the file."""
        return bool(place.file) and _order(place) <= (file_number(self.file), FIRST_POSITION)


@record(slots=True, frozen=True)
class PositionMark:
    """All transactions before a position of the log: they are visible to a read with locks, which waits for them.

    ``visible`` is the low mark of any read. It serves where the file of the stream's place is not known yet: after a
    start by GTIDs.
    """

    place: Place
    visible: LowMark

    def holds(self, place: Place) -> bool:
        """Whether the place is at or before the position."""
        return self.visible.holds(place) or (bool(place.file) and self.place.has_reached(place))


#: The lowest place: no transaction lies before it.
LOWEST: Final = Place("", 0, GtidSet())


def _order(place: Place) -> tuple[int, int]:
    # The base name may change with log_bin; the numbers go on (FLINK-39372).
    return file_number(place.file), place.position
