"""A fuzzer of whole conversations: streams, relays and the doctor against a source that lies.

Each step is one conversation with a source on a loopback port that answers wrong rows, damages payloads or frames,
and sends events that are none. Only errors of the library's tree may come out. See ``tests.support.limited_steps``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import replica
from protocol.constants import EventType
from protocol.conversation.messages import Err
from protocol.errors import ReplicaError
from replica.doctor import examine
from replica.relay import BinlogRelay
from tests.support.limited_steps import Step
from tests.support.log_builder import LogBuilder
from tests.support.raw_events import raw_event, rotate
from tests.support.socket_source import FILE, MYSQL_VARIABLES, UUID, Rows, SocketSource, serving

# Longer than any conversation takes: a client that waits for ever fails. The doctor waits 60 s for lists of tables.
_SECONDS = 90
_MOST_EVENTS = 200
_MAX_EVENT_BYTES = 64 << 20
_VALUES: tuple[str | None, ...] = (
    None,
    "",
    "x",
    "0",
    "-1",
    "nan",
    "1e400",
    "9" * 5000,
    "0-1-100",
    "0-1-1,0-1-2",
    "1-",
    f"{UUID}:1-5",
    f"{UUID}:5-1:tag:1",
    f"{UUID}:" + ":".join(str(2 * number) for number in range(2000, 0, -1)),
    "binlog.000001",
    "../../etc/passwd.1",
    "\udcff\udc80",
    "\x1b]0;title\x07\r\n",
    "ON",
    "ROW",
)
_PAYLOADS: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"\0\0\0\2\0\0\0",
    b"\xfe",
    b"\xfe\0\0\2\0",
    b"\xfe\0\0\x0a\0",
    b"\xfemysql_clear_password\0",
    b"\xfecaching_sha2_password\0" + bytes(21),
    b"\xfedialog\0\4Password",
    b"\xfeparsec\0" + bytes(32),
    b"\1\4",
    b"\1\3",
    b"\xff",
    b"\xff\x15\x04#28000Access denied",
    b"\xff\xd4\x04#HY000binlog",
    b"\xfb/etc/passwd",
    b"\xfc\xff\xff",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xfd\xff\xff\xff",
)


_STATEMENTS = (
    "INSERT INTO t VALUES (1)",
    "ALTER TABLE s.t ADD c INT FIRST",
    "DROP TABLE IF EXISTS s.t, s.u",
    "RENAME TABLE s.t TO s.u, s.u TO s.t",
    "XA COMMIT X'31',X'',1",
    "CREATE TABLE s.t (" + "(" * 1000,
    "\x00\x1b[31m",
)


@dataclass
class LyingSource(SocketSource):
    """Lies with ``rng``: about one payload in ``rarity``, and one answer in ten has other rows."""

    rng: random.Random = field(default_factory=random.Random)
    rarity: int = 30

    def __post_init__(self) -> None:
        self.alter = self._lie
        self.alter_bytes = self._damage

    def answer(self, sql: str) -> Rows | Err | None:
        rng = self.rng
        if rng.random() < 0.9:
            return super().answer(sql)
        if rng.random() < 0.2:
            return Err(rng.choice((1045, 1064, 1227, 1236, 0, 65535)), "HY000", rng.choice(_VALUES) or "")
        width = rng.randrange(1, 9)
        return [tuple(rng.choices(_VALUES, k=width)) for _ in range(rng.randrange(4))]

    def _lie(self, payload: bytes) -> Iterable[bytes]:
        rng = self.rng
        if rng.randrange(self.rarity):
            return (payload,)
        kind = rng.randrange(7)
        if kind == 0:
            return (rng.choice(_PAYLOADS),)
        if kind == 1:
            return (payload[: rng.randrange(len(payload) + 1)],)
        if kind == 2:
            return (payload, payload)
        if kind == 3:
            return ()
        if kind == 4:
            return (payload + rng.randbytes(rng.randrange(1, 40)),)
        changed = bytearray(payload or b"\0")
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFB, 0xFC, 0xFE, 0xFF))
        return (bytes(changed),)

    def _damage(self, data: bytes) -> bytes:
        """The header of a frame, now and then."""
        rng = self.rng
        if rng.randrange(4 * self.rarity):
            return data
        return bytes(byte ^ (1 << rng.randrange(8)) for byte in data[:4]) + data[4:]


def _log(rng: random.Random) -> list[bytes]:
    log = LogBuilder(checksum=rng.random() < 0.5)
    for number in range(rng.randrange(1, 4)):
        log.transaction([number], sequence=number + 1 if rng.random() < 0.5 else None)
    if rng.random() < 0.3:
        log.statement(rng.choice(_STATEMENTS))
    events = [log.event(index) for index in range(len(log.offsets))]
    if rng.random() < 0.5:
        _shuffle(events, rng)
    name = rng.choice((FILE, FILE, FILE, "", "x" * 400 + ".1", "../x.1", "a\nb.1", "bin"))
    return [rotate(name, flags=0x20), *events]


def _shuffle(events: list[bytes], rng: random.Random) -> None:
    """Leave out events, repeat them, change their order, and add some that tell of places that there are not."""
    for _ in range(rng.randrange(1, 4)):
        place, other = rng.randrange(len(events)), rng.randrange(len(events))
        end = rng.choice((0, 4, 99, 1 << 20, (1 << 32) - 1))
        kind = rng.randrange(5)
        if kind == 0 and len(events) > 1:
            del events[place]
        elif kind == 1:
            events.insert(other, events[place])
        elif kind == 2:
            events[place], events[other] = events[other], events[place]
        elif kind == 3:
            file = rng.choice((FILE, "binlog.000009", "binlog.000000", "../x.1", "\xff", ""))
            body = file.encode("latin-1")
            if rng.random() < 0.5:
                body = b"\1" + bytes([len(body)]) + body + b"\2\3\xfc" + rng.randbytes(2) + b"\0"
                events.insert(place, raw_event(EventType.HEARTBEAT_V2, body))
            else:
                events.insert(place, raw_event(EventType.HEARTBEAT, body, next_position=end))
        else:
            file = rng.choice((FILE, "binlog.000002", "binlog.000000", "other.000001"))
            events.insert(place, rotate(file, rng.choice((0, 4, 1 << 40, end)), flags=rng.choice((0, 0x20))))


def _source(rng: random.Random) -> LyingSource:
    variables = MYSQL_VARIABLES | {
        "gtid_mode": rng.choice(("ON", "OFF")),
        "binlog_checksum": rng.choice(("NONE", "CRC32")),
    }
    version = rng.choice(("9.7.4", "5.6.51", "5.5.5-10.11.8-MariaDB-log", "11.8.6-MariaDB"))
    return LyingSource(
        _log(rng),
        variables=variables,
        version=version,
        ends_dump=rng.random() < 0.5,
        closes_after_events=True,
        rng=rng,
        rarity=rng.choice((8, 30, 100)),
    )


async def _stream(source: SocketSource, rng: random.Random) -> None:
    start = rng.choice(
        (None, "earliest", "now", f"{FILE}:4", f"{UUID}:1-3", "0-1-5", "2026-01-31T12:00:00Z", "snapshot")
    )
    given: dict[str, Any] = {
        "start": start,
        "stop": rng.choice((None, "now")),
        "semi_sync": rng.random() < 0.2,
    }
    stream = replica.connect(
        source.dsn, reconnect=False, connect_timeout=0.3, max_event_bytes=_MAX_EVENT_BYTES, **given
    )
    async with stream:
        count = 0
        async for event in stream:
            repr(event)
            count += 1
            if count > _MOST_EVENTS:
                return


async def take_transactions(stream: replica.BinlogStream, most: int) -> None:
    """Look at all that transactions say, up to so many of them."""
    count = 0
    async for transaction in stream.transactions():
        async for change in transaction:
            repr(change)
        repr(transaction.checkpoint)
        count += 1
        if count > most:
            return


async def _transactions(source: SocketSource, rng: random.Random) -> None:
    stream = replica.connect(
        source.dsn,
        start=rng.choice(("earliest", f"{UUID}:1-3")),
        reconnect=replica.ReconnectPolicy(initial=0.001, maximum=0.001, attempts=3),
        connect_timeout=0.3,
        max_event_bytes=_MAX_EVENT_BYTES,
    )
    async with stream:
        await take_transactions(stream, _MOST_EVENTS)


async def _columns(source: SocketSource, rng: random.Random) -> None:
    given: dict[str, Any] = {"max_event_bytes": _MAX_EVENT_BYTES, "connect_timeout": 0.3}
    async with replica.connect(source.dsn, start="earliest", reconnect=False, **given) as stream:
        async for batch in stream.arrow(table="s.t"):
            repr(batch)


async def _relay(source: SocketSource, rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        relay = BinlogRelay(source.dsn, folder, once=rng.random() < 0.5, reconnect=False, connect_timeout=0.3)
        await relay.run()


async def _doctor(source: SocketSource, rng: random.Random) -> None:
    for finding in await examine(source.dsn, connect_timeout=0.3, server_id=7, semi_sync=True):
        repr(finding)


_CONSUMERS: tuple[Callable[[SocketSource, random.Random], Any], ...] = (
    _stream,
    _stream,
    _transactions,
    _columns,
    _relay,
    _doctor,
)


async def _converse(rng: random.Random) -> None:
    consume = rng.choice(_CONSUMERS)
    async with asyncio.timeout(_SECONDS), serving(_source(rng)) as source:
        with contextlib.suppress(ReplicaError):
            await consume(source, rng)


def steps(seed: int) -> Iterator[Step]:
    """Conversations without end; each depends on the seed and its number alone."""
    number = 0
    while True:
        rng = random.Random(f"{seed}/{number}")
        yield f"conversation {number}", partial(_run, rng)
        number += 1


def _run(rng: random.Random) -> None:
    asyncio.run(_converse(rng))
