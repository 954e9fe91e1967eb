"""The connected replicas: their identity and progress. A new replica ends the dump of an older duplicate."""

import asyncio
from collections.abc import Iterator

from protocol.conversation.commands import RegisterReplica
from protocol.position import BinlogPosition
from protocol.records import field, record


@record(slots=True, eq=False)
class ConnectedReplica:
    """One replica with a binlog dump.

    ``sent`` is the position up to which the log was sent; ``acknowledged`` is the last position that a
    semi-synchronous replica has acknowledged. ``registered`` is its COM_REGISTER_SLAVE, None if it sent none.
    """

    server_id: int
    uuid: str
    user: str
    host: str
    connection_id: int
    registered: RegisterReplica | None = None
    sent: BinlogPosition | None = None
    acknowledged: BinlogPosition | None = None
    is_waiting: bool = False
    was_replaced: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Replicas:
    """All connected replicas. ``by_uuid``: as on MySQL, replicas that have a uuid are identified by it."""

    def __init__(self, *, by_uuid: bool) -> None:
        self._by_uuid = by_uuid
        self._connected: list[ConnectedReplica] = []

    def __iter__(self) -> Iterator[ConnectedReplica]:
        return iter(self._connected)

    def add(self, replica: ConnectedReplica) -> None:
        """Add a replica whose dump starts, and end the dump of an older replica with the same identity."""
        for other in self._connected:
            if self._are_duplicates(replica, other) and other.task is not None:
                other.was_replaced = True
                other.task.cancel()
        self._connected.append(replica)

    def remove(self, replica: ConnectedReplica) -> None:
        """Remove a replica whose dump has ended."""
        self._connected.remove(replica)

    def _are_duplicates(self, one: ConnectedReplica, other: ConnectedReplica) -> bool:
        # A client that does not wait for more (mysqlbinlog) has server_id 0. On MySQL, ids only count without uuids.
        if not one.server_id or not other.server_id:
            return False
        if self._by_uuid and (one.uuid or other.uuid):
            return one.uuid == other.uuid
        return one.server_id == other.server_id
