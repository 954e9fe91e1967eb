"""The replicas that are connected: what each has told of itself, how far it has been sent the log, and twins."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.conversation.commands import RegisterReplica
from protocol.position import BinlogPosition


@dataclass(slots=True, eq=False)
class ConnectedReplica:
    """One connection that the log is sent over.

    ``sent`` is the place up to which it has been sent; ``acknowledged`` the last one that a semi-synchronous replica
    has acknowledged. ``registered`` is what it has registered with, None if it has not.
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
    """All of them. ``by_uuid``: replicas are told apart as MySQL does it, by their uuids where they have one."""

    def __init__(self, *, by_uuid: bool) -> None:
        self._by_uuid = by_uuid
        self._connected: list[ConnectedReplica] = []

    def __iter__(self) -> Iterator[ConnectedReplica]:
        return iter(self._connected)

    def add(self, replica: ConnectedReplica) -> None:
        """A dump begins. The one of the same identity that is older ends."""
        for other in self._connected:
            if self._are_twins(replica, other) and other.task is not None:
                other.was_replaced = True
                other.task.cancel()
        self._connected.append(replica)

    def remove(self, replica: ConnectedReplica) -> None:
        """A dump has ended."""
        self._connected.remove(replica)

    def _are_twins(self, one: ConnectedReplica, other: ConnectedReplica) -> bool:
        # Whoever does not wait (mysqlbinlog) has no identity; of MySQL's replicas those without uuids only go by ids.
        if not one.server_id or not other.server_id:
            return False
        if self._by_uuid and (one.uuid or other.uuid):
            return one.uuid == other.uuid
        return one.server_id == other.server_id
