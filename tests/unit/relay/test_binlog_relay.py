"""BinlogRelay copies from a BinlogServer: its files equal the source's, after every kind of interruption."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.constants import EventType
from protocol.errors import (
    BinlogNotFoundError,
    ConfigurationError,
    SourceChangedError,
)
from replica.files.log_files import find_log_files
from replica.relay import BinlogRelay, RelayFolder, folder
from replica.server import BinlogServer
from tests.support.log_builder import SOURCE_ID, LogBuilder
from tests.support.served import (
    PASSWORD,
    USER,
    close,
    dumped,
    gtids,
    mariadb_log,
    mariadb_transaction,
    mysql_log,
    rows_in,
    serving,
    write_index,
    write_mysql_files,
)
from tests.support.socket_source import until

OTHER = "ffffffff-eeee-1111-9999-000000000000"


def relay_of(port: int, directory: Path, **given: object) -> BinlogRelay:
    options = {"host": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD, "tls": "disabled"}
    return BinlogRelay(None, directory, **({"reconnect": False} | options | given))  # type: ignore[arg-type]


async def copy(server: BinlogServer, directory: Path, **given: object) -> None:
    """Copy the whole log as it is now."""
    await relay_of(server.port, directory, once=True, **given).run()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("bin.*"))}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    write_mysql_files(path)
    return path


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return tmp_path / "copy"


async def test_the_files_are_those_of_the_source(source: Path, copied: Path) -> None:
    async with serving(source, server_uuid=OTHER) as server:
        for _ in range(2):
            await copy(server, copied)
            assert files_of(copied) == files_of(source)
    assert (copied / "bin.index").read_text() == (source / "bin.index").read_text()
    assert OTHER in (copied / "auto.cnf").read_text()
    assert all((copied / name).stat().st_mode & 0o077 == 0 for name in os.listdir(copied))


@pytest.mark.parametrize("checksum", [True, False])
async def test_of_mariadb_and_without_checksums(tmp_path: Path, copied: Path, checksum: bool) -> None:
    source = tmp_path / "mariadb"
    source.mkdir()
    first, second = mariadb_log(checksum=checksum), mariadb_log(checksum=not checksum)
    for number in (1, 2, 3):
        mariadb_transaction(first, number)
    mariadb_transaction(second, 4)
    (source / "bin.000001").write_bytes(close(first, "bin.000002"))
    (source / "bin.000002").write_bytes(second.data)
    write_index(source, "bin.000001", "bin.000002")
    async with serving(source) as server:
        await copy(server, copied)
        await copy(server, copied)
    assert files_of(copied) == files_of(source)
    assert not (copied / "auto.cnf").exists()


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", 3), ("now", 1), ("bin.000002:4", 2), ("bin.000001:4", 3)]
)
async def test_where_it_begins(source: Path, copied: Path, start: str, expected: int) -> None:
    async with serving(source) as server:
        await copy(server, copied, start=start)
        # ``start`` only counts for an empty directory.
        await copy(server, copied, start="bin.000001:4")
    assert list(files_of(copied)) == [
        *[f"bin.00000{number}" for number in range(4 - expected, 4)],
        "bin.index",
    ]


@pytest.mark.parametrize("start", ["bin.000001:200", f"{SOURCE_ID}:1-5", "2024-05-01T12:00:00Z"])
def test_where_it_cannot_begin(copied: Path, start: str) -> None:
    with pytest.raises(ConfigurationError, match="a relay begins with a whole file"):
        relay_of(1, copied, start=start)


@pytest.mark.parametrize("option", ["stop=now", "tables=shop.*", "exclude_tables=shop.*"])
def test_what_would_leave_something_out(copied: Path, option: str) -> None:
    with pytest.raises(ConfigurationError, match="copies the whole log"):
        BinlogRelay(f"mysql://repl@127.0.0.1/?{option}", copied)


async def test_what_a_killed_relay_leaves_behind(source: Path, copied: Path, thorough: bool) -> None:
    """Wherever the files end, the next run completes them."""
    expected = files_of(source)
    async with serving(source) as server:
        await copy(server, copied)
        # The relay was killed in the second file.
        whole = expected["bin.000002"]
        for size in {*range(4, len(whole) + 1, 11 if thorough else 41), 5, 22, 23, 24, 128, len(whole) - 1}:
            (copied / "bin.000003").unlink(missing_ok=True)
            (copied / "bin.000002").write_bytes(whole[:size])
            (copied / ".bin.index.abc.tmp").write_text("half")
            write_index(copied, "bin.000001", "bin.000002")
            await copy(server, copied)
            assert files_of(copied) == expected
        assert not [name for name in os.listdir(copied) if name.startswith(".")]
        # The relay was killed before the index named the third file.
        (copied / "bin.000003").write_bytes(b"\xfebin")
        write_index(copied, "bin.000001", "bin.000002")
        await copy(server, copied)
    assert files_of(copied) == expected


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 30, b"\1" * 3])
async def test_what_a_loss_of_power_leaves_behind(source: Path, copied: Path, tail: bytes) -> None:
    expected = files_of(source)
    whole = expected["bin.000003"]
    async with serving(source) as server:
        await copy(server, copied)
        for size in (4, 123, 300, len(whole)):
            (copied / "bin.000003").write_bytes(whole[:size] + tail)
            await copy(server, copied)
            assert files_of(copied) == expected
        # The file's length had reached the disk, its data had not.
        for size in (0, 3, 400):
            (copied / "bin.000003").write_bytes(whole[:size] + bytes(len(whole) - size))
            await copy(server, copied)
            assert files_of(copied) == expected
        (copied / "bin.000003").write_bytes(b"")
        await copy(server, copied)
        assert files_of(copied) == expected


@pytest.mark.parametrize("tail", ["\0\0\0", "./bin", "./bin.000003\n\0\n", "x" * 100_000])
async def test_a_damaged_index_is_told_with_its_remedy(source: Path, copied: Path, tail: str) -> None:
    """Zeros at its end were a ValueError, for `serve`, too; a line without end was all of the message."""
    async with serving(source) as server:
        await copy(server, copied)
        index = copied / "bin.index"
        index.write_text(index.read_text().replace("./bin.000003\n", tail))
        with pytest.raises(
            ConfigurationError, match=r"bin\.index is damaged.*: write the files' names into it"
        ):
            await copy(server, copied)
        if "\0" in tail or len(tail) > 100:
            with pytest.raises(ConfigurationError, match=r"bin\.index is damaged"):
                find_log_files(copied)


@pytest.mark.parametrize("lines", ["13", "1223", "132", "321"])
async def test_an_index_with_lost_or_doubled_lines_is_damaged(source: Path, copied: Path, lines: str) -> None:
    """The relay went on, and readers of its folder missed the events of a file, or had them twice."""
    async with serving(source) as server:
        await copy(server, copied)
        (copied / "bin.index").write_text("".join(f"./bin.00000{number}\n" for number in lines))
        with pytest.raises(
            ConfigurationError, match=r"bin\.index is damaged, bin.* follows bin.*: write the files'"
        ):
            await copy(server, copied)
        with pytest.raises(ConfigurationError, match=r"bin\.index is damaged"):
            find_log_files(copied)


def test_a_file_that_was_deleted_in_the_middle_is_a_warning(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (source / "bin.000002").unlink()
    (source / "bin.index").write_text("./bin.000001\n./bin.000003\n./other.000001\n")
    assert len(find_log_files(source)) == 3
    assert "bin.000003 follows bin.000001; files between them are missing" in caplog.text


def test_a_file_system_without_locks(
    copied: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As NFS without its lock service: another relay was said to write there, and none could."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    RelayFolder(copied).close()
    assert "cannot be locked (No locks available): only one relay may use it" in caplog.text


async def test_a_newest_file_with_a_damaged_format_description(source: Path, copied: Path) -> None:
    """The relay took it for one without checksums, and wrote on behind it: nobody could read the file."""
    expected = files_of(source)
    async with serving(source) as server:
        await copy(server, copied)
        data = bytearray(expected["bin.000003"])
        # The last byte before its own checksum says which checksums events have.
        data[4 + int.from_bytes(data[13:17], "little") - 5] = 255
        (copied / "bin.000003").write_bytes(data)
        await copy(server, copied)
    assert files_of(copied) == expected


async def test_positions_that_a_source_cannot_be_asked_for(
    source: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COM_BINLOG_DUMP ends at 4 GiB: the relay asks for an earlier position, and compares the events."""
    monkeypatch.setattr(folder, "_MAX_POSITION", 400)
    expected = files_of(source)
    async with serving(source) as server:
        await copy(server, copied)
        for size in (len(expected["bin.000003"]) - 3, len(expected["bin.000003"])):
            (copied / "bin.000003").write_bytes(expected["bin.000003"][:size])
            with RelayFolder(copied) as opened:
                assert 4 < opened.position <= 400
            await copy(server, copied)
            assert files_of(copied) == expected


async def test_a_source_that_grows_and_goes_away(source: Path, copied: Path) -> None:
    """The relay follows its source and reconnects; meanwhile its files are served to a stream."""
    whole = files_of(source)
    names = ["bin.000001", "bin.000002", "bin.000003"]
    for name in names[1:]:
        (source / name).unlink()
    (source / names[0]).write_bytes(whole[names[0]][:200])
    write_index(source, names[0])
    port = 0
    policy = replica.ReconnectPolicy(initial=0.001, maximum=0.01)
    running: asyncio.Task[None] | None = None
    relay: BinlogRelay | None = None
    for index, name in enumerate(names):
        if index:
            (source / name).touch()
            write_index(source, *names[: index + 1])
        for size in (200, 333, len(whole[name])):
            async with serving(source, port=port, server_uuid=OTHER) as server:
                port = server.port
                if relay is None:
                    relay = relay_of(port, copied, reconnect=policy)
                    running = asyncio.create_task(relay.run())
                (source / name).write_bytes(whole[name][:size])
                events = whole_events(whole[name][:size])
                if events[-1][4] == EventType.ROTATE:
                    # A ROTATE is only sent once the file that it names exists.
                    events.pop()
                done = sum(map(len, events))
                await until(partial(has_bytes, copied / name, done))
    assert relay is not None
    assert running is not None
    assert str(relay.position) == f"{names[-1]}:{len(whole[names[-1]])}"
    async with serving(copied) as downstream:
        assert downstream.server_uuid == OTHER
        options = {"host": "127.0.0.1", "port": downstream.port, "user": USER, "password": PASSWORD}
        rows = []
        async with replica.connect(**options, tls="disabled", start="earliest", stop="now") as stream:  # type: ignore[arg-type]
            async for event in stream:
                if isinstance(event, replica.WriteRowsEvent):
                    rows += [row[0] for row in event.rows]
        assert rows == [1, 2, 3, 4, 5, 6]
    await relay.aclose()
    await running
    assert files_of(copied) == whole


def has_bytes(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size >= size


def whole_events(content: bytes) -> list[bytes]:
    """The magic bytes and the complete events."""
    parts, position = [content[:4]], 4
    while position + 19 <= len(content):
        size = int.from_bytes(content[position + 9 : position + 13], "little")
        if position + size > len(content):
            break
        parts.append(content[position : position + size])
        position += size
    return parts


async def test_another_source(source: Path, copied: Path) -> None:
    async with serving(source, server_uuid=OTHER) as server:
        await copy(server, copied)
    async with serving(source, server_uuid=str(SOURCE_ID)) as server:
        with pytest.raises(
            SourceChangedError, match=f"the log of server {OTHER}, but the source is {SOURCE_ID}"
        ):
            await copy(server, copied)
    # The same server after a restore: its file has other events.
    log = mysql_log(gtids(1, 4))
    for number in (7, 8, 9, 10):
        log.transaction([number], sequence=number)
    (source / "bin.000003").write_bytes(log.data)
    async with serving(source, server_uuid=OTHER) as server:
        with pytest.raises(SourceChangedError, match=r"bin.000003:\d+ differs from the copy"):
            await copy(server, copied)
    (source / "bin.000003").unlink()
    write_index(source, "bin.000001", "bin.000002")
    async with serving(source, server_uuid=OTHER) as server:
        with pytest.raises(BinlogNotFoundError):
            await copy(server, copied)


async def test_a_source_that_lost_the_end_of_its_log(source: Path, copied: Path) -> None:
    """It was told to choose a new start, which a directory with files does not take."""
    whole = whole_events((source / "bin.000003").read_bytes())
    async with serving(source) as server:
        await copy(server, copied)
    for size in (len(b"".join(whole[:-1])), len(b"".join(whole[:-2]))):
        (source / "bin.000003").write_bytes(b"".join(whole)[:size])
        async with serving(source) as server:
            with pytest.raises(
                SourceChangedError, match=r"does not have bin\.000003 as far as .* another directory"
            ):
                await copy(server, copied)


async def test_one_relay_at_a_time(source: Path, copied: Path) -> None:
    with RelayFolder(copied):
        async with serving(source) as server:
            with pytest.raises(ConfigurationError, match="another relay writes into"):
                await copy(server, copied)
    async with serving(source) as server:
        await copy(server, copied)


def test_directories_that_are_not_the_relays(source: Path, tmp_path: Path) -> None:
    before = files_of(source)
    with pytest.raises(ConfigurationError, match="that no relay has written"):
        RelayFolder(source)
    assert files_of(source) == before
    write_index(tmp_path, "bin.000001")
    (tmp_path / "relay.lock").touch()
    with pytest.raises(ConfigurationError, match=r"bin\.000001"):
        RelayFolder(tmp_path)


async def test_files_that_would_be_written_over(source: Path, copied: Path) -> None:
    """Binlog files without an index are not overwritten either."""
    os.mkdir(copied)
    (copied / "notes.2024").write_text("no log")
    mine = copied / "bin.000002"
    mine.write_bytes((source / "bin.000001").read_bytes())
    async with serving(source) as server:
        with pytest.raises(ConfigurationError, match=r"no relay has written \(bin.000002\)"):
            await copy(server, copied)
        assert mine.read_bytes() == (source / "bin.000001").read_bytes()
        mine.unlink()
        await copy(server, copied)
    assert files_of(copied) == files_of(source)


async def test_a_source_that_says_nothing_is_not_waited_for(copied: Path) -> None:
    async with asyncio.timeout(5):
        silent = socket.create_server(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        relay = relay_of(port, copied, connect_timeout=60)
        running = asyncio.create_task(relay.run())
        await until(lambda: relay._opening is not None)
        await relay.aclose()
        await running
        # Cancelling the task raises CancelledError.
        relay = relay_of(port, copied, connect_timeout=60)
        running = asyncio.create_task(relay.run())
        await until(lambda: relay._opening is not None)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        silent.close()


async def test_old_files_may_be_deleted(source: Path, copied: Path) -> None:
    async with serving(source) as server:
        await copy(server, copied)
        os.unlink(copied / "bin.000001")
        third = LogBuilder()
        third.data[:] = (source / "bin.000003").read_bytes()
        (source / "bin.000003").write_bytes(close(third, "bin.000004"))
        (source / "bin.000004").write_bytes(mysql_log(gtids(1, 6)).data)
        write_index(source, *(f"bin.00000{number}" for number in range(1, 5)))
        await copy(server, copied)
    assert (copied / "bin.index").read_text() == "./bin.000002\n./bin.000003\n./bin.000004\n"
    async with serving(copied) as downstream:
        assert rows_in(await dumped(downstream, gtid_set=gtids(1, 2))) == [3, 4, 5, 6]


async def test_files_that_are_called_otherwise_from_now_on(tmp_path: Path, copied: Path) -> None:
    source = tmp_path / "renamed"
    source.mkdir()
    first, second = mysql_log(), mysql_log(gtids(1, 1))
    first.transaction([1], sequence=1)
    second.transaction([2], sequence=2)
    (source / "bin.000007").write_bytes(first.data)
    (source / "binlog.000001").write_bytes(second.data)
    write_index(source, "bin.000007", "binlog.000001")
    async with serving(source) as server:
        for _ in range(2):
            await copy(server, copied)
            assert (copied / "bin.index").read_text() == (source / "bin.index").read_text()
            assert "binlog.index" not in os.listdir(copied)
    async with serving(copied) as downstream:
        assert rows_in(await dumped(downstream)) == [1, 2]


async def test_a_full_disk(source: Path, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events written before the disk was full are kept; the next run continues."""
    written = 0
    pwrite = os.pwrite

    def limited(handle: int, data: bytes | memoryview, position: int) -> int:
        nonlocal written
        if written >= 700:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = pwrite(handle, data[: min(len(data), 100)], position)
        written += count
        return count

    async with serving(source) as server:
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", limited)
            with pytest.raises(OSError, match=r"No space left .*copy/bin\.00000"):
                await copy(server, copied)
        assert 0 < sum(map(len, files_of(copied).values())) < 1000
        await copy(server, copied)
    assert files_of(copied) == files_of(source)


@pytest.mark.parametrize(
    ("call", "nth", "name"), [("pwrite", 1, "000001"), ("fsync", 1, "000001"), ("fsync", 2, "index")]
)
def test_a_disk_that_is_full_where_a_file_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int, name: str
) -> None:
    """It was "No space left on device" alone."""
    real, calls = getattr(os, call), 0

    def full(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    with RelayFolder(tmp_path) as opened:
        monkeypatch.setattr(os, call, full)
        with pytest.raises(OSError, match=rf"No space left .*bin\.{name}"):
            opened.enter("bin.000001", 4)


async def test_what_has_come_is_kept_when_it_is_cancelled(source: Path, copied: Path) -> None:
    async with serving(source) as server:
        relay = relay_of(server.port, copied)
        assert relay.position is None
        running = asyncio.create_task(relay.run())
        await until(lambda: str(relay.position).startswith("bin.000003") and server.replicas[0].is_waiting)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert files_of(copied) == files_of(source)
        RelayFolder(copied).close()
