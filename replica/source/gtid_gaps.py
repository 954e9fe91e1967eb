"""Whether transactions without GTIDs lie behind a place of MySQL's log, where a dump by GTIDs would pass over them.

Such a dump begins with the newest file before which all GTIDs are known (``find_first_log_not_in_gtid_set`` in
sql/binlog.cc). Files before it may hold transactions that were written while gtid_mode was not ON, and no error tells
so. In the files that are sent, such a transaction is an error of the source.
"""

from typing import Final

from protocol.binlog.events import AnonymousGtidEvent, Event, GtidEvent
from protocol.constants import POSITION_MASK, EventType
from protocol.conversation.server_errors import CANNOT_READ_BINLOG, WITHOUT_GTIDS
from protocol.errors import BinlogNotFoundError, PositionError
from protocol.gtid import AnyGtidSet, GtidSet
from protocol.position import BinlogPosition, file_with_number, is_older, split_file_name

from .log_scan import LogScan
from .server_facts import Source, log_status
from .session import Session

_KINDS: Final = frozenset(
    bytes([kind])
    for kind in (
        *(EventType.FORMAT_DESCRIPTION, EventType.ROTATE),
        *(EventType.GTID, EventType.GTID_TAGGED, EventType.ANONYMOUS_GTID),
    )
)


async def check_all_have_gtids(
    place: BinlogPosition, known: AnyGtidSet, session: Session, source: Source
) -> None:
    """Raise ``PositionError`` if transactions between a place and the first one outside of ``known`` have no GTIDs.

    The log is read up to there, unless the place is in the newest file, with which the dump begins at the latest.
    """
    if source.is_relay or not isinstance(known, GtidSet):
        return
    end = await log_status(session, source)
    if end is not None and end[0] == place.file:
        return

    def visit(event: Event, file: str, position: int) -> bool:
        if isinstance(event, AnonymousGtidEvent) and not isinstance(event, GtidEvent):
            raise PositionError(
                CANNOT_READ_BINLOG,
                "HY000",
                f"a transaction without GTID ends at {file}:{position}",
                WITHOUT_GTIDS,
            )
        return isinstance(event, GtidEvent) and event.gtid not in known

    scan = LogScan(session.options, source)
    try:
        # The source itself refuses to send such a transaction as long as gtid_mode is ON.
        await scan.walk(_reachable(place), visit, _KINDS)
    except BinlogNotFoundError:
        # The file was purged: what is left of the log is read.
        oldest = await scan.first_file()
        if is_older(place.file, oldest):
            await scan.walk(oldest, visit, _KINDS)


def _reachable(place: BinlogPosition) -> BinlogPosition | str:
    """Where to read on from a place: COM_BINLOG_DUMP has 32 bits for a position.

    MySQL ends a file behind the transactions that take it beyond 1 GB (max_binlog_size), and when gtid_mode changes:
    of one kind all that may follow in the file is.
    """
    if place.position <= POSITION_MASK:
        return place
    base, digits = split_file_name(place.file)
    return file_with_number(base, digits, int(digits) + 1) if digits else place.file
