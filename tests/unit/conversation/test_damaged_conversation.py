"""A source's side of whole connections: any cut gives the same events, and damage raises errors of the tree."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation.messages import AuthSwitchRequest, Err, Handshake, Ok
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA, Phase
from protocol.conversation.replica_side import Connection
from protocol.conversation.results import ColumnDefinition, encode_row
from protocol.errors import ReplicaError
from tests.support.examples import times
from tests.support.fake_source import MYSQL_CAPABILITIES, NONCE, connect
from tests.support.feeding import all_cuts

EOF_AS_OK = Ok(ends_rows=True)
EVENT = bytes(range(19)) + b"an event"


def _script() -> list[bytes]:
    """The bytes that a source sends on a whole connection, one item after each command or answer of the client."""
    client, source = connect()
    steps = []

    def step(*messages: Handshake | Ok | Err | AuthSwitchRequest | ColumnDefinition | bytes) -> None:
        start = len(source.sent)
        source.send(*messages)
        steps.append(source.sent[start:])

    step(Handshake("9.7.4", 7, MYSQL_CAPABILITIES, NONCE + b"\0", "caching_sha2_password"))
    client.next_event()
    source.read_login()
    step(AuthSwitchRequest("mysql_native_password", NONCE + b"\0"))
    client.next_event()
    source.read()
    step(Ok())
    source.frames.sequence = 1
    step(b"\x01", ColumnDefinition("a", 253), encode_row(("1",)), encode_row((None,)), EOF_AS_OK)
    source.frames.sequence = 1
    step(Err(1193, "HY000", "Unknown system variable 'x'"))
    source.frames.sequence = 1
    step(Ok())
    source.frames.sequence = 1
    step(*(b"\0" + EVENT * index for index in range(1, 6)), Err(1236, "HY000", "something"))
    return steps


COMMANDS: list[Callable[[Connection], None]] = [
    lambda client: client.send_query("SELECT a FROM t"),
    lambda client: client.send_query("SELECT @@x"),
    lambda client: client.send_register_replica(4711),
    lambda client: client.send_dump("binlog.000001", 4, 4711),
]


def _replay(steps: list[list[bytes]]) -> list[object]:
    """The events of a client that receives each step in pieces."""
    client, _ = connect()
    commands = iter(COMMANDS)
    seen: list[object] = []
    for pieces in steps:
        if client.phase is Phase.READY:
            next(commands)(client)
        for piece in pieces:
            client.receive_data(piece)
            try:
                _drain(client, seen)
            except ReplicaError as error:
                seen.append(str(error))
                if client.phase is Phase.CLOSED:
                    return seen
    return seen


def _drain(client: Connection, seen: list[object]) -> None:
    if client.phase is Phase.DUMP:
        while events := client.next_events():
            seen += events
    else:
        while (event := client.next_event()) is not NEED_DATA:
            seen.append(event)


def test_any_cut_of_a_conversation_gives_the_same_events() -> None:
    steps = _script()
    expected = _replay([[step] for step in steps])
    assert [type(item).__name__ for item in expected] == [
        "Handshake", "Authenticated", "ResultSet", "str", "Ok", *["bytes"] * 5, "str"
    ]  # fmt: skip
    for seed, step in enumerate(steps):
        for pieces in all_cuts(step, seed):
            cut = [[other] for other in steps]
            cut[seed] = pieces
            assert _replay(cut) == expected
    assert _replay([[step[index : index + 1] for index in range(len(step))] for step in steps]) == expected


def test_damaged_conversations_raise_errors_of_the_tree() -> None:
    generator = random.Random(7)
    print("seed 7")
    steps = _script()
    for _ in range(3000):
        damaged = list(steps)
        index = generator.randrange(len(steps))
        step = bytearray(damaged[index])
        for _ in range(generator.randrange(1, 4)):
            step[generator.randrange(len(step))] = generator.choice(
                (0, 1, 0xFB, 0xFE, 0xFF, generator.randrange(256))
            )
        damaged[index] = bytes(
            step[: generator.randrange(len(step) + 1)] if generator.random() < 0.2 else step
        )
        _replay([[step] for step in damaged])


@times(3)
@given(st.integers(0, 6), st.lists(st.binary(max_size=60), max_size=5))
def test_hostile_payloads_raise_errors_of_the_tree(healthy: int, payloads: list[bytes]) -> None:
    steps = _script()[:healthy]
    start = {0: 0, 1: 2, 2: 4}.get(healthy, 1)
    frames = FrameStream()
    frames.sequence = start
    steps.append(b"".join(frames.encode(payload) for payload in payloads))
    _replay([[step] for step in steps])
