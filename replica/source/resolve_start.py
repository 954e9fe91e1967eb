"""Resolves each kind of ``start`` to the point where a dump begins: a file and position, or a GTID set.

Asks the source if the user has the privilege, and reads the log otherwise. MySQL's own check accepts GTID sets of
unknown servers, so GTID sets are checked here first. Decodes no rows.
"""

import logging
import math
import re
from datetime import UTC, datetime
from typing import Final

from protocol.constants import POSITION_MASK
from protocol.conversation.server_errors import CANNOT_READ_BINLOG
from protocol.errors import (
    BinlogNotFoundError,
    ConfigurationError,
    PositionPastEndError,
    SourceChangedError,
    TransactionsUnavailableError,
)
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtid, MariadbGtidSet, parse_gtid_set
from protocol.position import FIRST_POSITION, BinlogPosition, Checkpoint, split_file_name
from protocol.records import record, replace

from ..config.log_facts import log_facts
from ..config.selection import Start
from ..sql.quoting import first_names, hex_literal
from .gtid_gaps import check_all_have_gtids
from .lagging_replica import check_lag
from .left_out import check_left_out
from .log_scan import LogScan
from .prepared_xa import are_xa_prepared, undecided_xa
from .quiet_end import quiet_end
from .same_log import check_same_log
from .server_facts import (
    Identity,
    Source,
    executed_gtids,
    has_exact_gtids,
    log_files,
    log_status,
    owned_gtids,
    purged_gtids,
)
from .session import Session
from .statement_answers import read_value

_LOGGER: Final = logging.getLogger(__name__)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_COPY_AGAIN = "copy the data again and start from the new copy's GTID set"


@record(frozen=True, slots=True)
class StartPoint:
    """Where a dump begins.

    ``gtid_set`` holds the transactions before this point, None if they are not known. With ``by_gtid`` the dump asks
    for all transactions outside ``gtid_set``, otherwise for ``file`` from ``position`` on (an empty name: the oldest
    file). With ``not_before`` (seconds since 1970) the stream begins with the first transaction that began at that
    time or later. ``is_visible``: everything before this point is known to be visible in the tables. ``begun``: see
    ``Progress``. ``stands_for_gtids``: ``gtid_set`` ends at this place in the log of this server; on other servers
    the stream goes on by the set.
    """

    file: str = ""
    position: int = FIRST_POSITION
    gtid_set: AnyGtidSet | None = None
    by_gtid: bool = False
    not_before: int | None = None
    is_visible: bool = False
    begun: tuple[str, int] | None = None
    stands_for_gtids: bool = False


async def resolve_start(start: Start, session: Session, source: Source, scan: LogScan) -> StartPoint:
    """The point that ``start`` means on this source.

    Raises ``TransactionsUnavailableError`` if the source has purged, or never had, transactions that are needed;
    ``ConfigurationError`` for a MariaDB GTID set on MySQL or the reverse; ``SourceChangedError`` for a checkpoint
    without GTIDs from another server.
    """
    if isinstance(start, Checkpoint):
        return await _from_checkpoint(start, session, source)
    await check_left_out(session, source)
    if isinstance(start, GtidSet | MariadbGtidSet):
        return await from_gtids(start, session, source)
    if isinstance(start, datetime):
        return await _from_time(start, session, scan)
    if isinstance(start, BinlogPosition):
        return await _from_position(start, session, source, scan)
    if start == "snapshot":
        return await _from_visible(session, source, scan)
    return StartPoint() if start == "earliest" else await _from_now(session, source, scan)


async def _from_now(session: Session, source: Source, scan: LogScan) -> StartPoint:
    # GTIDs come first: every user may ask for them, and they are exact while others commit.
    if source.has_gtids:
        executed = await executed_gtids(session, source)
        return StartPoint(gtid_set=source.with_unlogged(executed), by_gtid=True)
    end = await log_end(session, source, scan)
    return StartPoint(end.file, end.position)


async def _from_visible(session: Session, source: Source, scan: LogScan) -> StartPoint:
    """A place before which all transactions are visible in the tables, for a copy of the tables that begins there.

    That is ``gtid_executed`` if the source's engine commits before it adds the GTID. Otherwise it is the end of the
    log at a quiet moment, else the beginning of the current log file: the source begins a file when all commits of
    the previous file are done. Rows that were written to that file come again then, also if a foreign key has deleted
    them without an event. XA transactions that are prepared and not decided come again, also of the file before:
    they are executed by their GTIDs, and their rows are invisible.
    """
    if source.is_relay:
        raise ConfigurationError(
            "start: the source serves binlog files and has no tables to copy: copy from the server that wrote them"
        )
    if await has_exact_gtids(session, source):
        executed = await _executed(session, source)
        end = await log_end(session, source, scan)
        return StartPoint(
            gtid_set=executed - await undecided_xa(session, scan, end.file, executed), by_gtid=True
        )
    quiet = await quiet_end(session, source)
    if quiet is not None:
        point = await _from_position(quiet, session, source)
        if source.has_gtids:
            point = await with_gtids(point, source, scan)
        return replace(point, is_visible=True)
    file = (await log_end(session, source, scan)).file
    if await are_xa_prepared(session, source):
        file = await scan.file_before(file)
    return await _from_position(BinlogPosition(file, FIRST_POSITION), session, source)


async def _from_position(
    start: BinlogPosition, session: Session, source: Source, scan: LogScan | None = None
) -> StartPoint:
    """The point at a position. With ``scan``, a position inside a transaction gets no GTID set."""
    gtid_set: AnyGtidSet | None = None
    if source.is_mariadb and not (scan is not None and await scan.is_inside(start)):
        # A position outside the log gives NULL here, and an error at the dump.
        sql = f"SELECT BINLOG_GTID_POS({hex_literal(start.file)}, {start.position})"
        value, *_ = await session.query_row(sql)
        if value is not None:
            gtid_set = source.with_unlogged(read_value(MariadbGtidSet, value, sql))
    return StartPoint(start.file, start.position, gtid_set)


async def from_gtids(gtid_set: AnyGtidSet, session: Session, source: Source) -> StartPoint:
    if isinstance(gtid_set, MariadbGtidSet) != source.is_mariadb and gtid_set:
        family = "MariaDB" if source.is_mariadb else "MySQL"
        raise ConfigurationError(f"start: the source is {family}, and {gtid_set} is not a {family} GTID set")
    if source.is_mariadb:
        known = gtid_set if isinstance(gtid_set, MariadbGtidSet) else MariadbGtidSet()
        return StartPoint(gtid_set=known, by_gtid=True)
    if not source.has_gtids:
        raise ConfigurationError(
            "start: a GTID set needs gtid_mode=ON on the source: give a position instead"
        )
    assert isinstance(gtid_set, GtidSet)
    await _check_gtids(gtid_set, session, source)
    return StartPoint(gtid_set=gtid_set, by_gtid=True)


async def _executed(session: Session, source: Source) -> GtidSet:
    executed = await executed_gtids(session, source)
    assert isinstance(executed, GtidSet)
    return executed


async def _check_gtids(gtid_set: GtidSet, session: Session, source: Source) -> None:
    """Refuse a GTID set that would leave a gap. MySQL itself silently accepts GTIDs of servers unknown to it."""
    unknown = gtid_set - await _executed(session, source)
    if unknown:
        # The source sends transactions before they are committed, and semi-synchronous ones may wait long for their
        # commit. This order of queries misses no transaction that moves from gtid_owned to gtid_executed meanwhile.
        unknown -= await owned_gtids(session)
        unknown -= await _executed(session, source)
    if unknown:
        await check_lag(unknown, session, source)
        raise TransactionsUnavailableError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the source never had these transactions of the start set, or has lost them: {unknown}",
            f"this is another server, or it was restored to an earlier state; {_COPY_AGAIN}",
        )
    purged = await purged_gtids(session) - gtid_set
    if purged:
        raise TransactionsUnavailableError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the source has deleted these transactions, which the start set lacks: {purged}",
            f"{_COPY_AGAIN}; to keep logs longer, raise binlog_expire_logs_seconds",
        )


async def check_held(point: StartPoint, session: Session, source: Source) -> None:
    """Raise ``TransactionsUnavailableError`` if a MariaDB source lacks transactions before the point.

    MariaDB itself reports this only in the dump, too late to choose another host. The rule is MariaDB's
    (``sql_repl.cc``: check_slave_start_position): a domain that the source has never had does not count as missing.
    See ``check_lag``, too.
    """
    if not (point.by_gtid and isinstance(point.gtid_set, MariadbGtidSet)):
        return
    sql = "SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos"
    held = [gtid for text in await session.query_row(sql) for gtid in read_value(_gtids, text, sql)]
    domains = {gtid.domain_id for gtid in held}
    lacking = MariadbGtidSet(
        gtid
        for gtid in point.gtid_set
        if gtid.domain_id in domains
        and not any(
            (gtid.domain_id, gtid.server_id) == (other.domain_id, other.server_id)
            and gtid.sequence <= other.sequence
            for other in held
        )
    )
    if lacking:
        await check_lag(lacking, session, source, held)
        raise TransactionsUnavailableError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the source does not have these transactions of the start set: {lacking}",
            "no replication runs on it that would bring them, or it has later ones of the domain: it is another "
            f"server, or was restored to an earlier state; {_COPY_AGAIN}",
        )


def check_position(point: StartPoint, end: BinlogPosition) -> None:
    """Raise a ``PositionError`` if a dump would begin behind the end of the source's log, as after RESET.

    The source would say so, but is not asked for a dump if the stop has been reached at the start.
    """
    if point.by_gtid or point.stands_for_gtids or not point.file:
        return
    start = BinlogPosition(point.file, point.position)
    if split_file_name(start.file)[0] != split_file_name(end.file)[0] or start > end:
        kind = PositionPastEndError if start.file == end.file else BinlogNotFoundError
        raise kind(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the log ends at {end}, before the start {start}",
            "the position belongs to another server's log, or the source's log was deleted (RESET), or lost its end "
            "in a crash: copy the data again, or choose a new start",
        )


def _gtids(text: str) -> list[MariadbGtid]:
    return [MariadbGtid.parse(item) for item in text.split(",") if item]


async def _from_checkpoint(checkpoint: Checkpoint, session: Session, source: Source) -> StartPoint:
    identity, begun = (checkpoint.server_uuid, checkpoint.server_id), checkpoint.file_begun
    known = (checkpoint.file, begun) if begun and not source.is_galera else None
    await check_move(identity, source, session)
    if checkpoint.gtid_set is not None and source.has_gtids:
        point = await from_gtids(parse_gtid_set(checkpoint.gtid_set), session, source)
        # The text of an empty set does not tell whose it is.
        gtid_set = point.gtid_set
        if gtid_set is not None and checkpoint.file and is_same_server(identity, source):
            place = BinlogPosition(checkpoint.file, checkpoint.position)
            is_end = await check_same_log(place, begun, gtid_set, session, source)
            await check_all_have_gtids(place, gtid_set, session, source)
            if is_end:
                point = standing_for(place, gtid_set) or point
            point = replace(point, begun=known)
        return point
    check_same_server(identity, source)
    return StartPoint(checkpoint.file, checkpoint.position, begun=known)


def standing_for(place: BinlogPosition, gtid_set: AnyGtidSet) -> StartPoint | None:
    """The point at a place where the set ends (``ends_at``); None if a dump command has no room for the place."""
    if place.position > POSITION_MASK:
        return None
    return StartPoint(place.file, place.position, gtid_set, stands_for_gtids=True)


def is_same_server(identity: Identity, source: Source) -> bool:
    """Whether the source has this server_uuid (MySQL), or this server_id if there is no uuid (MariaDB).

    All servers have the server_id 1 by default: a MariaDB server that took MySQL's address is told by the uuid.
    """
    if source.is_mariadb and source.server_uuid is None and _UUID.fullmatch(identity[0] or ""):
        return False
    for then, now in zip(identity, (source.server_uuid, source.server_id), strict=True):
        if then is not None and now is not None:
            return then == now
    return False


def check_same_server(identity: Identity, source: Source) -> None:
    """Raise ``SourceChangedError`` if the source is not the server that a position belongs to."""
    if not is_same_server(identity, source):
        raise SourceChangedError(
            f"the position to resume from belongs to server {identity[0] or identity[1]}, but this is server "
            f"{source.server_uuid or source.server_id}: a position is of no use on another server, and no GTID set "
            "is known -- start from a GTID set to be able to change servers"
        )


def can_go_on_at(source: Source, identity: Identity, *, by_gtids: bool) -> bool:
    """Whether a stream from the server with this identity may go on at this server."""
    return is_same_server(identity, source) or (by_gtids and source.has_gtids and not source.counts_alone)


async def check_move(identity: Identity, source: Source, session: Session) -> None:
    """Raise ``SourceChangedError`` for another server than before, if a stream would miss rows there.

    GTIDs of one node of Galera may mean nothing on others, table names may have another case, and the log may lack
    selected tables (``check_left_out``).
    """
    if identity == (None, None) or is_same_server(identity, source):
        await check_left_out(session, source)
        return
    if source.counts_alone:
        raise SourceChangedError(
            f"the place to resume from belongs to node {identity[0] or identity[1]}, but this is node "
            f"{source.server_uuid}: with wsrep_gtid_mode=OFF each node counts its transactions itself, and a GTID "
            "names others here -- connect to that node, or set wsrep_gtid_mode=ON on all nodes and copy the data anew"
        )
    patterns = {*session.options.tables, *session.options.exclude_tables}
    lost = sorted(pattern for pattern in patterns if pattern.lower() not in patterns)
    if source.lowers_names and lost:
        raise SourceChangedError(
            f"another server answers than before, and it has lower_case_table_names=1: {first_names(lost)} matches "
            "no table of its log -- name the tables in lower case, too"
        )
    await check_left_out(session, source, identity)


async def _from_time(start: datetime, session: Session, scan: LogScan) -> StartPoint:
    """Start at the newest file that was created before that second: the transactions of older files began earlier.

    The FORMAT_DESCRIPTION of a file holds the time of its creation, at which the previous file had ended.
    """
    second = math.floor(start.timestamp())
    files = await log_files(session) or await scan.files()
    low, high = 0, len(files)
    while high - low > 1:
        middle = (low + high) // 2
        if await scan.created(files[middle]) < second:
            low = middle
        else:
            high = middle
    if low == 0:
        await _warn_of_purged(files[0], second, session, scan)
    return StartPoint(files[low], FIRST_POSITION, not_before=second)


async def _warn_of_purged(first: str, second: int, session: Session, scan: LogScan) -> None:
    """Log a warning if the oldest file that is left was begun after that time: files before it were purged."""
    number = split_file_name(first)[1]
    if not number or int(number) <= 1:
        return
    begun = await scan.created(first)
    if begun > second:
        _LOGGER.warning(
            "start: the source's log begins with %s at %s, after the start: files before it were purged, and changes "
            "in them do not come -- to keep files longer, raise binlog_expire_logs_seconds (expire_logs_days)",
            first,
            datetime.fromtimestamp(begun, UTC).isoformat(),
            extra=log_facts("log-purged", source=session.options.address, binlog_file=first),
        )


async def log_end(session: Session, source: Source, scan: LogScan) -> BinlogPosition:
    """Where the source's log ends now."""
    status = await log_status(session, source)
    return await scan.end() if status is None else BinlogPosition(*status)


async def with_gtids(start: StartPoint, source: Source, scan: LogScan) -> StartPoint:
    """Add the GTIDs before the point, if the log has GTIDs. At a file's start the log itself lists them."""
    if start.gtid_set is not None or start.position == FIRST_POSITION:
        return start
    before = await scan.gtids_before(BinlogPosition(start.file, start.position))
    return replace(start, gtid_set=None if before is None else source.with_unlogged(before))


async def begin_dump(start: StartPoint, session: Session, source: Source, server_id: int) -> None:
    """Send the dump command; MariaDB expects the GTID set in a user variable, set before."""
    gtid_set = start.gtid_set if start.by_gtid else None
    if isinstance(gtid_set, GtidSet):
        session.start_dump_gtid(gtid_set.encode(), server_id, source.dump_flags)
        return
    if gtid_set is not None:
        await session.query(
            f"SET @slave_connect_state = '{gtid_set}', @slave_gtid_strict_mode = 0, "
            "@slave_gtid_ignore_duplicates = 0"
        )
    session.start_dump(start.file, start.position, server_id, source.dump_flags)
