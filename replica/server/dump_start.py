"""Finds where a binlog dump starts: turns a replica's request into a file, a position and an event filter.

It may also refuse the request. The checks and their order are those of MySQL's ``Binlog_sender::check_start_file``
and of MariaDB's ``init_binlog_sender``.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final

from protocol.binlog.checksum import version_numbers
from protocol.constants import DumpFlag
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid
from protocol.errors import ConfigurationError, DecodeError
from protocol.gtid import Gtid, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.position import FIRST_POSITION

from .event_filter import AfterGtidState, AllEvents, MakeHeartbeat, WithoutGtids
from .gtids import LogGtids, MariadbState, first_gtid
from .refusals import Refusals
from .send_dump import DumpStart
from .served_log import FileHead, ServedLog

_LONG_HEARTBEATS_SINCE: Final = (8, 0, 26)


class DumpStarts:
    """Finds where dumps of one log start. Methods raise ``DumpRefusedError``."""

    def __init__(
        self, log: ServedLog, gtids: LogGtids, refusals: Refusals, server_id: int, server_uuid: str
    ) -> None:
        self._log = log
        self._gtids = gtids
        self._refusals = refusals
        self._server_id = server_id
        self._server_uuid = server_uuid

    async def find(
        self,
        command: BinlogDump | BinlogDumpGtid,
        variables: Mapping[str, str | None],
        make_heartbeat: MakeHeartbeat,
    ) -> DumpStart:
        """The start of the dump that ``command`` asks for.

        ``variables`` are the user variables that the replica has SET. ``make_heartbeat`` tells it a position.
        """
        if isinstance(command, BinlogDumpGtid):
            return await self._by_gtids(command, make_heartbeat)
        state = variables.get("slave_connect_state")
        if self._refusals.is_mariadb and state is not None:
            return await self._by_state(state, variables)
        file = command.file or self._log.names[0]
        self._check_position(file, command.position)
        return DumpStart(file, command.position, AllEvents())

    def has_long_heartbeats(self, flags: int, version: str) -> bool:
        """Whether heartbeats are HEARTBEAT_V2 events."""
        is_asked = bool(flags & DumpFlag.HEARTBEAT_V2) and not self._refusals.is_mariadb
        return is_asked and version_numbers(version) >= _LONG_HEARTBEATS_SINCE

    def _check_position(self, file: str, position: int) -> None:
        size = self._log.size(file) if file in self._log.names else 0
        if not size:
            raise self._refusals.no_such_file()
        if position < FIRST_POSITION:
            raise self._refusals.before_first(file, position)
        if position > size:
            raise self._refusals.past_end(file, position)

    async def _by_gtids(self, command: BinlogDumpGtid, make_heartbeat: MakeHeartbeat) -> DumpStart:
        try:
            # In a thread: a command may have a million intervals, and the other clients have their turns meanwhile.
            sent = await asyncio.to_thread(GtidSet.decode, command.gtid_set or GtidSet().encode())
        except DecodeError:
            raise self._refusals.malformed_gtids() from None
        if self._refusals.is_mariadb or await self._gtids.mode() != "ON":
            raise self._refusals.no_gtids()
        event_filter = WithoutGtids(sent, make_heartbeat, self._refusals)
        if command.file:
            self._check_position(command.file, command.position)
            return DumpStart(command.file, command.position, event_filter)
        await self._check_gtids(sent)
        name, head = self._file_before(sent)
        with self._log.open(name, head.first_event) as events:
            first = await first_gtid(events, head, name)
        is_new = not (isinstance(first, Gtid) and first in sent)
        return DumpStart(name, FIRST_POSITION, event_filter, by_gtid=True, keep_created=is_new)

    async def _check_gtids(self, sent: GtidSet) -> None:
        ours = sent.of_source(uuid.UUID(self._server_uuid))
        executed = await self._gtids.executed()
        if not await asyncio.to_thread(ours.__le__, executed):
            raise self._refusals.more_gtids()
        missing = await asyncio.to_thread(self._gtids.purged().__sub__, sent)
        if missing:
            raise await asyncio.to_thread(self._refusals.purged_gtids, sent, missing)

    def _file_before(self, sent: GtidSet) -> tuple[str, FileHead]:
        """The newest file before which the replica misses no transaction."""
        for name in reversed(self._log.names):
            head = self._log.head(name)
            if head is not None and isinstance(head.previous, GtidSet) and head.previous <= sent:
                return name, head
        raise self._refusals.no_gtids()

    async def _by_state(self, text: str, variables: Mapping[str, str | None]) -> DumpStart:
        try:
            wanted = {gtid.domain_id: gtid for gtid in MariadbGtidSet(text)}
        except ConfigurationError:
            raise self._refusals.malformed_state() from None
        known = await self._gtids.state()
        ignores_duplicates = variables.get("slave_gtid_ignore_duplicates") not in (None, "0")
        for gtid in wanted.values():
            self._check_known(gtid, known, ignores_duplicates)
        name, previous = self._file_before_state(wanted)
        for gtid in previous:
            if wanted.get(gtid.domain_id) == gtid:
                # The domain continues with its first transaction in this file: nothing has to be skipped.
                del wanted[gtid.domain_id]
        strict = variables.get("slave_gtid_strict_mode") not in (None, "0")
        behind = AfterGtidState(wanted, known, self._server_id, self._refusals, strict=strict)
        is_new = behind.is_done
        return DumpStart(name, FIRST_POSITION, behind, by_gtid=True, keep_created=is_new)

    def _check_known(self, gtid: MariadbGtid, known: MariadbState, ignores_duplicates: bool) -> None:
        last = known.last_of(gtid.domain_id)
        if last is None or known.has_reached(gtid) or (ignores_duplicates and last.sequence < gtid.sequence):
            return
        raise self._refusals.unknown_gtid(gtid, has_diverged=last.sequence >= gtid.sequence)

    def _file_before_state(self, wanted: Mapping[int, MariadbGtid]) -> tuple[str, tuple[MariadbGtid, ...]]:
        """The newest file before which the replica misses no transaction."""
        for name in reversed(self._log.names):
            head = self._log.head(name)
            if head is None:
                continue
            previous = head.previous if isinstance(head.previous, tuple) else ()
            if _is_before(previous, wanted):
                return name, previous
        raise self._refusals.purged_state()


def _is_before(previous: tuple[MariadbGtid, ...], wanted: Mapping[int, MariadbGtid]) -> bool:
    """MariaDB's ``contains_all_slave_gtid``: a domain's last entry is its last transaction."""
    for index, gtid in enumerate(previous):
        mine = wanted.get(gtid.domain_id)
        if mine is None:
            return False
        if mine.server_id == gtid.server_id and mine.sequence <= gtid.sequence:
            is_last = index + 1 == len(previous) or previous[index + 1].domain_id != gtid.domain_id
            if mine.sequence < gtid.sequence or not is_last:
                return False
    return True
