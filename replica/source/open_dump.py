"""Opens a dump: the first time at the user's ``start``, later where the last connection was lost.

It decides where the dump begins and which events the consumer already has. Of several hosts it takes the first host
that has that place. It reads no events.
"""

from protocol.binlog.decoder import EventDecoder
from protocol.errors import ConfigurationError, SourceChangedError, SourceConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import FIRST_POSITION, BinlogPosition, Checkpoint
from protocol.records import record, replace

from ..config.options import Options
from ..config.selection import Start
from ..transactions.boundary import Progress
from ..transactions.replay import CannotResumeError, Delivered, PositionReplay, Replay, ReplayEnd, RowReplay
from ..transactions.stop_point import StopPoint
from .dump import Dump, Greeted
from .gtid_gaps import check_all_have_gtids
from .hosts import first_host
from .resolve_start import (
    StartPoint,
    can_go_on_at,
    check_held,
    check_move,
    check_position,
    check_same_server,
    from_gtids,
    is_same_server,
    resolve_start,
    standing_for,
    with_gtids,
)
from .resolve_stop import resolve_stop
from .same_log import check_same_log, ends_at
from .semi_sync import offer, overdue_place
from .server_facts import Identity, Source
from .session import TRIES


@record(frozen=True, slots=True)
class FirstOpening:
    """``start`` and ``stop`` as resolved on this source. The dump has not been requested yet."""

    dump: Dump
    start: StartPoint
    stop: StopPoint | None
    progress: Progress


@record(frozen=True, slots=True)
class Broken:
    """How far a stream had come when its connection was lost.

    ``end`` is the last event that is done; None without one. ``delivered`` has notes on the open transaction's rows,
    which ``decoder`` has read. ``is_torn``: see ``behind_torn_event``.
    """

    progress: Progress
    by_gtid: bool
    identity: Identity
    end: ReplayEnd | None
    delivered: Delivered
    decoder: EventDecoder
    is_torn: bool = False

    def behind_torn_event(self) -> "Broken":
        """Where the log goes on if an event at its end was torn by a crash: by GTIDs, if MariaDB's are known.

        MariaDB leaves such an event at the end of its file, and a dump by position ends there each time. By GTIDs it
        sends the next file, whose GTID list proves that this one has nothing behind the event; else the error comes
        again. MySQL cuts the event off when it starts again (``MYSQL_BIN_LOG::open_binlog`` in sql/binlog.cc).
        """
        is_known = isinstance(self.progress.gtid_set, MariadbGtidSet)
        return replace(self, by_gtid=True, is_torn=True) if is_known else self


async def open_first(options: Options, start: Start) -> FirstOpening:
    """Connect and find start and stop. Raises what ``Session``, ``resolve_start`` and ``resolve_stop`` raise."""
    has_others = len(options.hosts) > 1
    return await first_host(options, lambda one: _open_first(one, start, has_others))


async def _open_first(options: Options, start: Start, has_others: bool) -> FirstOpening:
    greeted = await _greet_first(options, start)
    session, source = greeted.session, greeted.source
    try:
        scan = greeted.scan()
        point = await resolve_start(start, session, source, scan)
        if has_others or options.stop is not None or _is_elsewhere(start, source):
            await check_held(point, session, source)
        stop = None
        if options.stop is not None:
            stop = await resolve_stop(options.stop, session, source, scan)
            if stop.position is not None and not isinstance(options.stop, BinlogPosition):
                check_position(point, stop.position)
            if stop.gtid_set is not None and stop.position is None:
                point = await with_gtids(point, source, scan)
        progress = Progress(point.file, point.position, point.gtid_set, source.has_gtids)
        progress.begun = point.begun
        if not isinstance(start, Checkpoint | GtidSet | MariadbGtidSet):
            progress.unlogged = source.unlogged
        return FirstOpening(Dump(greeted, point, is_known=False), point, stop, progress)
    except BaseException:
        session.abort()
        raise


def _is_elsewhere(start: Start, source: Source) -> bool:
    if not isinstance(start, Checkpoint):
        return False
    return not is_same_server((start.server_uuid, start.server_id), source)


async def _greet_first(options: Options, start: Start) -> Greeted:
    if not isinstance(start, Checkpoint):
        return await Greeted.greet(options)
    return await _greet(options, (start.server_uuid, start.server_id), by_gtids=start.gtid_set is not None)


async def _greet(options: Options, identity: Identity, *, by_gtids: bool) -> Greeted:
    """Connect to a server at which the stream can go on; to another one if such answer some times in a row.

    Behind one address there may be several servers, and without GTIDs a place means something on one of them only.
    """
    for turn in range(TRIES):
        greeted = await Greeted.greet(options, turn)
        if can_go_on_at(greeted.source, identity, by_gtids=by_gtids) or turn == TRIES - 1:
            break
        await greeted.session.aclose()
    return greeted


async def start_first(dump: Dump, start: Start) -> None:
    """Ask for the log of a first opening at ``start``."""
    options, overdue = dump.session.options, None
    if options.semi_sync:
        await offer(dump.session, dump.source, is_first=True)
    if isinstance(start, Checkpoint):
        identity = start.server_uuid, start.server_id
        overdue = overdue_place(dump.session, dump.source, identity, start)
    await dump.start(overdue)


async def open_again(options: Options, broken: Broken) -> tuple[Dump, Replay | None]:
    """Reconnect and ask for the log from the last transaction boundary; the replay passes over repeated events.

    Raises ``SourceChangedError`` if another server answers and only a position is known, or it has no such GTIDs, and
    ``TransactionsUnavailableError`` if that server lacks transactions that were read. Raises ``CannotResumeError`` if
    the open transaction cannot be compared.
    """
    return await first_host(options, lambda one: _open_again(one, broken))


async def _open_again(options: Options, broken: Broken) -> tuple[Dump, Replay | None]:
    greeted = await _greet(options, broken.identity, by_gtids=broken.progress.resume_set is not None)
    try:
        start = await _resume_point(greeted, broken)
        await check_held(start, greeted.session, greeted.source)
        replay = _replay(greeted, broken, by_gtid=start.by_gtid)
        dump = Dump(greeted, start, is_known=broken.end is not None)
        if options.semi_sync:
            await offer(greeted.session, greeted.source, is_first=False)
        await dump.start(overdue_place(greeted.session, greeted.source, broken.identity, broken.progress))
    except BaseException:
        greeted.session.abort()
        raise
    return dump, replay


async def _resume_point(greeted: Greeted, broken: Broken) -> StartPoint:
    progress, end = broken.progress, broken.end
    is_elsewhere = greeted.source.has_gtids and not is_same_server(broken.identity, greeted.source)
    await check_move(broken.identity, greeted.source, greeted.session)
    gtid_set = progress.resume_set
    if is_elsewhere:
        progress.unlogged = ()
    elif isinstance(gtid_set, MariadbGtidSet):
        # What this server has logged of these domains since is new. It would look for the places in its log.
        gtid_set = MariadbGtidSet(gtid for gtid in gtid_set if gtid not in progress.unlogged)
    if (broken.by_gtid or is_elsewhere) and gtid_set is not None:
        try:
            point = await from_gtids(gtid_set, greeted.session, greeted.source)
        except ConfigurationError as error:
            if is_same_server(broken.identity, greeted.source):
                raise SourceConfigurationError(
                    "gtid_mode is not ON any more on the source, and the stream goes by GTIDs: start it again at the "
                    "checkpoint, which has a file and a position, too"
                ) from error
            # It is this host that cannot serve the stream, and no option of the user: another host may.
            raise SourceChangedError(f"another server answers than the stream began with: {error}") from error
        if is_elsewhere or not progress.file:
            return point
        place = BinlogPosition(progress.file, progress.position)
        if end is not None and not end.is_open:
            # A source that lost the end of its log in a crash may have given its GTIDs anew meanwhile.
            begun = progress.file_begun
            is_end = await check_same_log(place, begun, gtid_set, greeted.session, greeted.source)
        else:
            is_end = await ends_at(place, gtid_set, greeted.session, greeted.source)
        # Until the first file of a new server has come, the place is that of the server before.
        if progress.file_begun is not None:
            await check_all_have_gtids(place, gtid_set, greeted.session, greeted.source)
        if is_end and not broken.is_torn:
            point = standing_for(place, gtid_set) or point
        return point
    if progress.file or progress.position > FIRST_POSITION:
        check_same_server(broken.identity, greeted.source)
    if end is not None and not end.is_open and end.closes(progress.file, progress.position):
        # Read the event before the boundary again, to prove that this is still the same log.
        return StartPoint(end.file, end.position)
    return StartPoint(progress.file, progress.position)


def _replay(greeted: Greeted, broken: Broken, *, by_gtid: bool) -> Replay | None:
    end = broken.end
    if end is None:
        return None
    if is_same_server(broken.identity, greeted.source):
        return PositionReplay(end, by_gtid)
    if not end.is_open:
        return None
    if not broken.by_gtid:
        # A dump by position keeps no notes of rows.
        raise CannotResumeError("the transaction was read from another server, by its position there")
    return RowReplay(end, broken.delivered.segments(broken.decoder), broken.delivered.trailing)
