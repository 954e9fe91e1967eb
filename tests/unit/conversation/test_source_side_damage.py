"""Bytes that a client should not send (cut anywhere, damaged, random): they raise only errors of the tree."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import Capability
from protocol.conversation.commands import BinlogDumpGtid, Query, Quit, RegisterReplica, SemiSyncAck
from protocol.conversation.messages import Handshake, HandshakeResponse
from protocol.conversation.packets import FrameStream
from protocol.conversation.phases import NEED_DATA, Phase, StartTls
from protocol.conversation.server_plugins import Account, StoredPassword
from protocol.conversation.source_side import Acceptor
from protocol.errors import ReplicaError
from tests.support.examples import times
from tests.support.fake_source import NONCE, PASSWORD, sha2_scramble
from tests.support.feeding import all_cuts
from tests.support.source_pair import OFFERED, USER

PLUGIN = "caching_sha2_password"
EVENT = bytes(range(19)) + b"an event"


def _script() -> list[bytes]:
    """The bytes that a client sends on a whole connection, one item after each answer of the server."""
    capabilities = OFFERED & ~Capability.SSL & ~Capability.QUERY_ATTRIBUTES
    frames = FrameStream()
    frames.sequence = 1
    answer = HandshakeResponse(capabilities, USER, sha2_scramble(PASSWORD), auth_plugin=PLUGIN)
    steps = [frames.encode(answer.encode())]
    for payload in (
        Query("SELECT UNIX_TIMESTAMP()").encode(),
        b"\x0e",
        RegisterReplica(4711, "here").encode(),
        BinlogDumpGtid(b"set", 4711).encode(),
        SemiSyncAck("f", 5).encode(),
        SemiSyncAck("f", 6).encode(),
        Quit().encode(),
    ):
        steps.append(FrameStream().encode(payload))
    return steps


def _replay(steps: list[list[bytes]]) -> tuple[list[object], bytes]:
    """The events and the output of a server that receives each step in pieces."""
    accounts = {USER: Account(StoredPassword.of(PASSWORD))}
    server = Acceptor(Handshake("9.7.4", 7, OFFERED, NONCE + b"\0", PLUGIN), accounts)
    seen: list[object] = []
    sent = b""
    try:
        for piece in (piece for pieces in steps for piece in pieces):
            server.receive_data(piece)
            while (event := server.next_event()) is not NEED_DATA:
                seen.append(event)
                if server.phase is Phase.QUERY:
                    server.send_rows(("a",), [("1",)])
                elif server.phase is Phase.REGISTER:
                    server.send_ok()
                elif isinstance(event, BinlogDumpGtid):
                    server.send_events([EVENT, EVENT])
                elif isinstance(event, StartTls):
                    server.tls_established()
                sent += server.data_to_send()
    except ReplicaError as error:
        seen.append(str(error))
        assert server.phase is Phase.CLOSED
    return seen, sent + server.data_to_send()


def test_any_cut_of_a_conversation_means_the_same() -> None:
    steps = _script()
    expected = _replay([[step] for step in steps])
    assert [type(event).__name__ for event in expected[0]] == [
        "LoggedIn", "Query", "Answered", "RegisterReplica", "BinlogDumpGtid", "SemiSyncAck", "SemiSyncAck", "Quit"
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
    errors = 0
    for _ in range(5000):
        damaged = list(steps)
        index = generator.randrange(len(steps))
        step = bytearray(damaged[index])
        for _ in range(generator.randrange(1, 4)):
            step[generator.randrange(len(step))] = generator.choice(
                (0, 1, 0xFB, 0xFE, 0xFF, generator.randrange(256))
            )
        is_cut = generator.random() < 0.2
        damaged[index] = bytes(step[: generator.randrange(len(step) + 1)] if is_cut else step)
        seen, _ = _replay([[step] for step in damaged])
        errors += bool(seen) and isinstance(seen[-1], str)
    assert errors > 1000


@times(3)
@given(st.integers(0, 8), st.lists(st.binary(max_size=60), max_size=5))
def test_hostile_payloads_raise_errors_of_the_tree(healthy: int, payloads: list[bytes]) -> None:
    steps = [[step] for step in _script()[:healthy]]
    frames = FrameStream()
    frames.sequence = 1 if healthy == 0 else 0
    _replay([*steps, [frames.encode(payload) for payload in payloads]])


@times(2)
@given(st.binary(max_size=200))
def test_random_bytes_raise_errors_of_the_tree(data: bytes) -> None:
    _replay([[data]])
