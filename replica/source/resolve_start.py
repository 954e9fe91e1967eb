"""Where a dump begins: every kind of ``start`` resolved to a file and position, or to a GTID set.

Asks the source where it may, and reads the log where it may not. MySQL's own checks of a GTID set let sets of
unknown servers pass, so they are made here first.
"""

import math
from dataclasses import replace
from datetime import datetime

from protocol.errors import ConfigurationError, SourceChangedError, TransactionsUnavailableError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtid, MariadbGtidSet, parse_gtid_set
from protocol.position import BinlogPosition, Checkpoint
from protocol.records import record

from ..config.selection import Start
from ..sql.quoting import hex_literal
from .log_scan import LogScan
from .server_facts import (
    CANNOT_READ_BINLOG,
    Source,
    executed_gtids,
    log_files,
    log_status,
    owned_gtids,
    purged_gtids,
)
from .session import Session

FIRST_POSITION = 4  # behind the magic bytes
_COPY_ANEW = "copy the data anew and start from that copy's GTID set"


@record(frozen=True, slots=True)
class StartPoint:
    """Where a dump begins.

    ``gtid_set`` holds the transactions before it, None if they are not known; with ``by_gtid`` the source is asked
    for everything else, otherwise for ``file`` from ``position`` on (an empty name: the oldest file). Transactions
    that began before ``not_before`` (seconds since 1970) are passed over until the first one that did not.
    """

    file: str = ""
    position: int = FIRST_POSITION
    gtid_set: AnyGtidSet | None = None
    by_gtid: bool = False
    not_before: int | None = None


async def resolve_start(start: Start, session: Session, source: Source, scan: LogScan) -> StartPoint:
    """The point that ``start`` means on this source.

    Raises ``TransactionsUnavailableError`` when the source has purged, or never had, transactions that are needed,
    ``ConfigurationError`` for a start of the other family, and ``SourceChangedError`` for a
    position of another server.
    """
    if isinstance(start, Checkpoint):
        return await _from_checkpoint(start, session, source)
    if isinstance(start, GtidSet | MariadbGtidSet):
        return await from_gtids(start, session, source)
    if isinstance(start, datetime):
        return await _from_time(start, session, scan)
    if isinstance(start, BinlogPosition):
        return await _from_position(start, session, source)
    return StartPoint() if start == "earliest" else await _from_now(session, source, scan)


async def _from_now(session: Session, source: Source, scan: LogScan) -> StartPoint:
    # GTIDs are asked for first: everybody may, and they are exact while others commit.
    if source.has_gtids:
        return StartPoint(gtid_set=await executed_gtids(session, source), by_gtid=True)
    end = await log_end(session, source, scan)
    return StartPoint(end.file, end.position)


async def _from_position(start: BinlogPosition, session: Session, source: Source) -> StartPoint:
    gtid_set: AnyGtidSet | None = None
    if source.is_mariadb:
        # Positions that lie outside of the log give NULL here, and their error at the dump.
        sql = f"SELECT BINLOG_GTID_POS({hex_literal(start.file)}, {start.position})"
        rows = await session.query(sql)
        gtid_set = None if rows[0][0] is None else MariadbGtidSet(str(rows[0][0]))
    return StartPoint(start.file, start.position, gtid_set)


async def from_gtids(gtid_set: AnyGtidSet, session: Session, source: Source) -> StartPoint:
    if isinstance(gtid_set, MariadbGtidSet) != source.is_mariadb and gtid_set:
        family = "MariaDB" if source.is_mariadb else "MySQL"
        raise ConfigurationError(f"start: {gtid_set} is no GTID set of {family}, which the source is")
    if source.is_mariadb:
        known = gtid_set if isinstance(gtid_set, MariadbGtidSet) else MariadbGtidSet()
        return StartPoint(gtid_set=known, by_gtid=True)
    if not source.has_gtids:
        raise ConfigurationError(
            "start: the source has gtid_mode other than ON, so it takes no GTID set: give a position"
        )
    assert isinstance(gtid_set, GtidSet)
    await _check_gtids(gtid_set, session, source)
    return StartPoint(gtid_set=gtid_set, by_gtid=True)


async def _executed(session: Session, source: Source) -> GtidSet:
    executed = await executed_gtids(session, source)
    assert isinstance(executed, GtidSet)
    return executed


async def _check_gtids(gtid_set: GtidSet, session: Session, source: Source) -> None:
    """The source takes GTIDs of servers that it knows nothing of without a word; a stream of it would have a gap."""
    unknown = gtid_set - await _executed(session, source)
    if unknown:
        # The source sends transactions before they are committed; semi-synchronous ones may stay so for long. In this
        # order none of them is missed on its way from one set to the other.
        unknown -= await owned_gtids(session)
        unknown -= await _executed(session, source)
    if unknown:
        raise TransactionsUnavailableError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the source never had these transactions of the start set, or has lost them: {unknown}",
            f"it is another server, or was restored to an earlier state; {_COPY_ANEW}",
        )
    purged = await purged_gtids(session) - gtid_set
    if purged:
        raise TransactionsUnavailableError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the source has deleted these transactions, which the start set lacks: {purged}",
            f"{_COPY_ANEW}; to keep logs longer, raise binlog_expire_logs_seconds",
        )


async def check_held(point: StartPoint, session: Session, source: Source) -> None:
    """Raise ``TransactionsUnavailableError`` where MariaDB lacks transactions before the point.

    It would say so itself, in the dump; by then there is no choosing of another host. The rule is its own
    (``sql_repl.cc``: check_slave_start_position): a domain that it has never had is not lacking.
    """
    if not (point.by_gtid and isinstance(point.gtid_set, MariadbGtidSet)):
        return
    text = await session.query_value(
        "SELECT CONCAT(@@GLOBAL.gtid_binlog_state, ',', @@GLOBAL.gtid_slave_pos)"
    )
    held = [MariadbGtid.parse(item) for item in text.split(",") if item]
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
        raise TransactionsUnavailableError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"the source does not have these transactions, or not yet: {lacking}",
            "it lags behind, or was restored to an earlier state",
        )


async def _from_checkpoint(checkpoint: Checkpoint, session: Session, source: Source) -> StartPoint:
    if checkpoint.gtid_set is not None and source.has_gtids:
        return await from_gtids(parse_gtid_set(checkpoint.gtid_set), session, source)
    check_same_server((checkpoint.server_uuid, checkpoint.server_id), source)
    return StartPoint(checkpoint.file, checkpoint.position)


def is_same_server(identity: tuple[str | None, int | None], source: Source) -> bool:
    """Whether a source is the server of that uuid (MySQL) or, where there is none, of that server id (MariaDB)."""
    for then, now in zip(identity, (source.server_uuid, source.server_id), strict=True):
        if then is not None and now is not None:
            return then == now
    return False


def check_same_server(identity: tuple[str | None, int | None], source: Source) -> None:
    """Raise ``SourceChangedError`` where a position of one server would be looked for in the log of another."""
    if not is_same_server(identity, source):
        raise SourceChangedError(
            f"the place to go on is a position of server {identity[0] or identity[1]}, this is "
            f"{source.server_uuid or source.server_id}: a position is of no use on another server, and there is no "
            "GTID set to find the place by -- start from a GTID set to be able to change servers"
        )


async def _from_time(start: datetime, session: Session, scan: LogScan) -> StartPoint:
    """The newest file that was begun before that second; no transaction of an older one can have begun later.

    A file's FORMAT_DESCRIPTION carries the time at which the file was begun, which is when the one before it ended.
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
    return StartPoint(files[low], FIRST_POSITION, not_before=second)


async def log_end(session: Session, source: Source, scan: LogScan) -> BinlogPosition:
    """Where the source's log ends now."""
    status = await log_status(session, source)
    return await scan.end() if status is None else BinlogPosition(*status)


async def with_gtids(start: StartPoint, scan: LogScan) -> StartPoint:
    """The same point with the GTIDs before it, if the log has them. At a file's start, the log itself says them."""
    if start.gtid_set is not None or start.position == FIRST_POSITION:
        return start
    return replace(start, gtid_set=await scan.gtids_before(BinlogPosition(start.file, start.position)))


async def begin_dump(start: StartPoint, session: Session, source: Source, server_id: int) -> None:
    """Send the dump command; MariaDB takes GTIDs in a variable before it."""
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
