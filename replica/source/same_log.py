"""Finds out whether a server still has the log of a place. After RESET it writes another log, and gives GTIDs anew.

A GTID set does not show this: a replica that goes on by it misses the new transactions whose GTIDs are in the set.
The time at which the place's file was begun does: it is in the file's format description, which each dump sends
first. A server begins a file when it starts, so a server that was set back to an earlier state has other files, too.

A checkpoint may lack this time. Then the events at the place are looked at. In another log the place may be in no
file, within an event, or, on MariaDB, within a transaction, or after a transaction that the set lacks; the check
fails to notice another log that has an event ending there. On MySQL a place within a transaction proves nothing:
heartbeats move it there while a dump leaves out known transactions (Binlog_sender::send_events in
sql/rpl_binlog_sender.cc). MariaDB sends heartbeats where it waits for new transactions (wait_new_events in
sql/sql_repl.cc).
"""

import re
from typing import Final

from protocol.binlog.events import FormatDescriptionEvent
from protocol.errors import ReplicaError, ServerError, SourceChangedError
from protocol.gtid import AnyGtidSet, MariadbGtidSet
from protocol.position import BinlogPosition, is_older, split_file_name

from ..sql.quoting import hex_literal, text_literal
from ..transactions.boundary import Progress
from .log_scan import LogScan
from .server_facts import Source
from .session import Session
from .statement_answers import read_value

# ER_ERROR_WHEN_EXECUTING_COMMAND
_CANNOT_SHOW: Final = 1220
# Kinds of events that stand within a transaction of MariaDB's log, as SHOW BINLOG EVENTS names them.
_INSIDE: Final = re.compile("rows|^(Table_map|Query|Xid|XA_prepare)", re.IGNORECASE)


async def check_same_log(
    place: BinlogPosition,
    begun: int | None,
    gtid_set: AnyGtidSet,
    session: Session,
    source: Source,
) -> bool:
    """Raise ``SourceChangedError`` if ``place`` and the set belong to another log than that of this server.

    ``begun``: when the place's file was begun. It is not compared for the newest file, whose dump tells it
    (``take_file``). Nothing is checked if the user may not ask, or the file was purged. A semi-synchronous source of
    MariaDB is not asked: while commits wait for a replica (AFTER_SYNC), the next commit holds LOCK_log, for which
    SHOW BINARY LOGS waits (trx_group_commit_leader in sql/log.cc), and the replica itself could not connect.
    BINLOG_GTID_POS does not wait for it.

    Returns what ``ends_at`` returns.
    """
    before = await _gtids_before(place, session, source)
    is_end = _is_end(before, gtid_set, source)
    if source.is_relay or source.is_galera or source.is_semi_sync:
        return is_end
    try:
        files = {str(row[0]): str(row[1]) for row in await session.query("SHOW BINARY LOGS", 2)}
    except ServerError:
        return is_end
    size, newest = files.get(place.file), next(reversed(files), place.file)
    _check_base(place.file, newest, source)
    if size is None:
        is_there = not is_older(newest, place.file)
    elif place.position > read_value(int, size, "SHOW BINARY LOGS"):
        is_there = False
    else:
        is_there = await _is_right(place, session, source) and (
            not source.is_mariadb or _is_known(before, gtid_set)
        )
        if is_there and begun and place.file != newest:
            is_there = await _begun(place.file, session, source) in (None, begun)
    if not is_there:
        raise _was_reset(place, source)
    return is_end


async def ends_at(place: BinlogPosition, gtid_set: AnyGtidSet, session: Session, source: Source) -> bool:
    """Whether the set ends at the place in the log of this MariaDB server, so that a dump should begin there.

    Without gtid_strict_mode, sequence numbers of a domain may decrease in a log. If a server is asked by GTIDs, it
    begins with the last file whose list has a lower number (contains_all_slave_gtid in sql/sql_repl.cc), and sends
    the events after the first number that is not lower (send_event_to_slave there). So it repeats transactions, or
    leaves some out.
    """
    return _is_end(await _gtids_before(place, session, source), gtid_set, source)


def take_file(event: FormatDescriptionEvent, progress: Progress, source: Source) -> None:
    """Note when a file was begun; ``SourceChangedError`` if a file of that name was begun at another time before."""
    begun = event.file, event.header.timestamp
    if progress.begun is not None and not source.is_galera:
        _check_base(progress.begun[0], event.file, source)
    if progress.begun is not None and progress.begun[0] == event.file and progress.begun != begun:
        raise _was_reset(BinlogPosition(event.file, progress.position), source)
    # A node of Galera may have the server_id of another one, and has files of its own.
    if source.is_galera:
        progress.begun = None
    else:
        note_file(event, progress)


def note_file(event: FormatDescriptionEvent, progress: Progress) -> None:
    """Note when a file was begun, without a check: the log is known to be the right one."""
    progress.begun = event.file, event.header.timestamp


def _check_base(before: str, now: str, source: Source) -> None:
    """Raise ``SourceChangedError`` if the files' names differ in more than their numbers: they have no order.

    MariaDB keeps beside its files the GTIDs that it has given, under the same name, and gives them anew
    (MYSQL_BIN_LOG::read_state_from_file in sql/log.cc). MySQL keeps them in mysql.gtid_executed.
    """
    if split_file_name(before)[0] == split_file_name(now)[0]:
        return
    remedy = (
        "MariaDB has given its GTIDs anew then: copy the data again, or start at the first file of the new log, if "
        "all of the old one was read"
        if source.is_mariadb
        else "to go on, start at the checkpoint's GTID set (start=), with a new checkpoint store and schema store"
    )
    raise SourceChangedError(
        f"the source's log files have another name than before, {now} after {before} (log_bin, which may follow the "
        f"host's name) -- {remedy}"
    )


def _was_reset(place: BinlogPosition, source: Source) -> SourceChangedError:
    return SourceChangedError(
        f"the log of server {source.server_uuid or source.server_id} is not the one that was read up to {place}: "
        "it was reset (RESET MASTER, RESET BINARY LOGS AND GTIDS) or restored, and its GTIDs were given anew -- "
        "copy the data again, or start at a place of the new log"
    )


async def _begun(file: str, session: Session, source: Source) -> int | None:
    """The time at which the source began the file; None if it does not say so."""
    try:
        return await LogScan(session.options, source).created(file) or None
    except ReplicaError:
        return None


async def _is_right(place: BinlogPosition, session: Session, source: Source) -> bool:
    """Whether a dump can have reached the place; True if the source does not tell."""
    # For a place within an event, MySQL shows the next event; 5.6 and MariaDB refuse.
    sql = f"SHOW BINLOG EVENTS IN {text_literal(place.file)} FROM {place.position} LIMIT 1"
    try:
        rows = await session.query(sql, 3)
    except ServerError as error:
        # MariaDB also refuses at an event that a crash has torn. BINLOG_GTID_POS tells whether an event begins there.
        return source.is_mariadb or error.code != _CANNOT_SHOW
    is_inside = any(_INSIDE.search(str(kind)) for _, _, kind in rows)
    is_event = all(position == str(place.position) for _, position, _ in rows)
    return is_event and not (is_inside and source.is_mariadb)


async def _gtids_before(place: BinlogPosition, session: Session, source: Source) -> MariadbGtidSet | None:
    """The transactions of MariaDB's log before the place, which every user may ask for; None outside of the log.

    A node of Galera may have the place of another one, and a relay would read its file for the answer.
    """
    if not source.is_mariadb or source.is_galera or source.is_relay:
        return None
    sql = f"SELECT BINLOG_GTID_POS({hex_literal(place.file)}, {place.position})"
    value, *_ = await session.query_row(sql)
    return None if value is None else read_value(MariadbGtidSet, value, sql)


def _is_known(before: MariadbGtidSet | None, gtid_set: AnyGtidSet) -> bool:
    """Whether the set has all transactions before a place.

    It may have more: of a domain that it was ahead in when it was given as a start.
    """
    return before is not None and isinstance(gtid_set, MariadbGtidSet) and before <= gtid_set


def _is_end(before: MariadbGtidSet | None, gtid_set: AnyGtidSet, source: Source) -> bool:
    if before is None or not isinstance(gtid_set, MariadbGtidSet):
        return False
    # The log has no transactions yet in domains that were only replicated.
    return before <= gtid_set and {*before, *source.unlogged}.issuperset(gtid_set)
