"""BinlogRelay and sources that send wrong events: other files of its folder stay untouched, and errors are typed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from protocol.constants import EventType
from protocol.errors import (
    ChecksumError,
    ConfigurationError,
    DecodeError,
    SourceChangedError,
    SourceConfigurationError,
    TruncatedError,
)
from replica.config.reconnect import FailureCount
from replica.relay import BinlogRelay
from tests.support.log_builder import LogBuilder
from tests.support.raw_events import format_description, raw_event, rotate
from tests.support.socket_source import MYSQL_VARIABLES, SocketSource
from tests.support.socket_source import serving as scripted

ROTATE = rotate("bin.000001", flags=0x20)
ROTATE_CHECKED = rotate("bin.000001", flags=0x20, checksum=True)
DESCRIPTION = format_description(algorithm=0, next_position=4 + len(format_description()))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return tmp_path / "copy"


async def relayed(events: list[bytes], directory: Path, **variables: str) -> None:
    log = SocketSource(events, ends_dump=True, variables=MYSQL_VARIABLES | variables)
    async with scripted(log) as listening:
        await BinlogRelay(listening.dsn, directory, once=True, reconnect=False).run()


def end_of(*events: bytes) -> int:
    return 4 + sum(map(len, events))


async def test_names_that_lead_elsewhere(tmp_path: Path) -> None:
    for name in (
        "../bin.000001",
        "/tmp/bin.000001",
        "bin",
        "bin.index",
        ".",
        "a\\b.000001",
        "bin.000001/",
        "",
        "x" * 300 + ".000001",
        "é" * 100 + ".000001",
        "a\nb.000001",
        "\x1b]0;.000001",
    ):
        with pytest.raises(DecodeError, match="invalid binlog file name"):
            await relayed([rotate(name, flags=0x20), DESCRIPTION], tmp_path / "copy")
    assert os.listdir(tmp_path) == ["copy"]
    assert sorted(os.listdir(tmp_path / "copy")) == ["auto.cnf", "relay.lock", "relay.schemas"]


async def test_files_without_events(tmp_path: Path) -> None:
    """Each announcement made an empty file: a source could fill a disk's inodes with some bytes each."""
    rotates = [rotate(f"bin.{number:06}", flags=0x20) for number in range(1, 500)]
    with pytest.raises(DecodeError, match=r"goes on to bin\.000002, and has sent no event of bin\.000001"):
        await relayed(rotates, tmp_path / "copy")
    assert [name for name in os.listdir(tmp_path / "copy") if name.startswith("bin.0")] == ["bin.000001"]
    # A connection that breaks here begins with the same announcement.
    await relayed([rotates[0], rotates[0], DESCRIPTION, rotates[1], DESCRIPTION], tmp_path / "copy")


async def test_files_that_the_relay_did_not_begin(copied: Path, tmp_path: Path) -> None:
    """A ROTATE to their names overwrote them, and wrote through symbolic links."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"keep")
    os.mkdir(copied)
    (copied / "passwords.2024").write_bytes(b"keep")
    (copied / "linked.1").symlink_to(outside)
    (copied / "dangling.1").symlink_to(tmp_path / "nowhere")
    (copied / "folder.1").mkdir()
    os.mkfifo(copied / "pipe.1")
    for name in ("passwords.2024", "linked.1", "dangling.1", "folder.1", "pipe.1"):
        with pytest.raises(ConfigurationError, match="not overwritten"):
            await relayed([rotate(name, flags=0x20), DESCRIPTION], copied)
    assert outside.read_bytes() == (copied / "passwords.2024").read_bytes() == b"keep"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("content", [b"", b"\xfeb", b"\xfebin"])
async def test_a_file_that_a_crash_left_before_the_index_named_it(copied: Path, content: bytes) -> None:
    os.mkdir(copied)
    (copied / "bin.000001").write_bytes(content)
    (copied / "relay.lock").touch()
    await relayed([ROTATE, DESCRIPTION], copied)
    assert (copied / "bin.000001").read_bytes() == b"\xfebin" + DESCRIPTION


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_the_owner_can_read_the_copy(copied: Path) -> None:
    await relayed([ROTATE, DESCRIPTION], copied)
    assert mode_of(copied) == 0o700
    assert {mode_of(copied / name) for name in os.listdir(copied)} == {0o600}


async def test_events_too_short_for_a_header(tmp_path: Path) -> None:
    for size in range(19):
        with pytest.raises(TruncatedError, match=f"an event of {size} bytes"):
            await relayed([ROTATE, DESCRIPTION, bytes(size)], tmp_path / str(size))


async def test_events_before_the_name_of_their_file(copied: Path) -> None:
    with pytest.raises(DecodeError, match="before it names the binlog file"):
        await relayed([DESCRIPTION], copied)


async def test_gaps_and_damage(copied: Path) -> None:
    beyond = raw_event(EventType.STOP, b"", next_position=5000)
    with pytest.raises(DecodeError, match="says that it ends at 5000, but it ends at 144"):
        await relayed([ROTATE, DESCRIPTION, beyond], copied)
    with pytest.raises(DecodeError, match="continues at position 4 instead of"):
        await relayed([ROTATE, DESCRIPTION, ROTATE], copied)
    with pytest.raises(DecodeError, match="starts the file at position 500"):
        await relayed([ROTATE, DESCRIPTION, rotate("bin.000002", 500, flags=0x20)], copied)
    log = LogBuilder()
    log.transaction([1])
    damaged = bytearray(log.event(1))
    damaged[-6] ^= 1
    with pytest.raises(DecodeError, match="checksum"):
        await relayed([ROTATE, log.event(0), bytes(damaged)], copied.with_name("other"))


@pytest.mark.parametrize("damage", [(17, 0x20), (4, EventType.XID ^ EventType.HEARTBEAT)])
async def test_damage_makes_of_an_event_one_that_is_left_out(copied: Path, damage: tuple[int, int]) -> None:
    """A copy lacked its last event. Of MariaDB's, some without a position, it lacked others for ever."""
    log = LogBuilder()
    log.transaction([1])
    events = [log.event(index) for index in range(len(log.offsets))]
    byte, bits = damage
    last = bytearray(events[-1])
    assert last[4] == EventType.XID
    last[byte] ^= bits
    with pytest.raises(DecodeError, match="checksum"):
        await relayed([ROTATE_CHECKED, *events[:-1], bytes(last)], copied, binlog_checksum="CRC32")


@pytest.mark.parametrize("flags", [0, 0x20], ids=["an event", "one that is left out"])
async def test_damage_that_differs_is_that_of_the_network(tmp_path: Path, flags: int) -> None:
    """At one place, three times in a row, it ended a relay as if its source's log was damaged."""
    log = LogBuilder()
    log.transaction([1])
    count, failures = FailureCount(), list[bool]()
    for bit in (1, 1, 1, 2, 4, 8):
        damaged = bytearray(log.event(1))
        damaged[-6] ^= bit
        damaged[17] ^= flags
        events = [ROTATE_CHECKED, log.event(0), bytes(damaged)]
        with pytest.raises(ChecksumError, match=r"bin\.000001, at \d+") as caught:
            await relayed(events, tmp_path / f"{bit}", binlog_checksum="CRC32")
        failures.append(count.add(caught.value).is_repeated)
    assert failures == [False, False, True, False, False, False]


async def test_a_log_that_was_reset(copied: Path) -> None:
    second = rotate("bin.000002", flags=0x20)
    with pytest.raises(SourceChangedError, match=r"goes back to bin\.000001"):
        await relayed([ROTATE, DESCRIPTION, second, DESCRIPTION, ROTATE], copied)


async def test_encrypted_logs_of_mariadb(copied: Path) -> None:
    start = raw_event(
        EventType.MARIADB_START_ENCRYPTION, bytes(17), next_position=end_of(DESCRIPTION) + 36, flags=0x80
    )
    with pytest.raises(SourceConfigurationError, match="encrypts its binary log"):
        await relayed([ROTATE, DESCRIPTION, start], copied)


async def test_a_source_without_a_log(copied: Path) -> None:
    with pytest.raises(SourceConfigurationError, match="log_bin is OFF"):
        await relayed([], copied, log_bin="OFF")


async def test_a_log_of_statements_is_copied_with_a_warning(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    statement = raw_event(EventType.STOP, b"", next_position=end_of(DESCRIPTION) + 19)
    await relayed([ROTATE, DESCRIPTION, statement], copied, binlog_format="STATEMENT")
    assert (copied / "bin.000001").read_bytes() == b"\xfebin" + DESCRIPTION + statement
    assert "binlog_format is STATEMENT: the source logs statements, not rows" in caplog.text
