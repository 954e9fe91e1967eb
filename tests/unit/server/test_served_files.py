"""The order in which BinlogServer sends files from a directory that no source would leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.constants import EventType
from protocol.errors import ServerError
from protocol.gtid import GtidSet
from tests.support.log_builder import LogBuilder
from tests.support.served import (
    CHECKSUM_ASKED,
    dumped,
    gtids,
    logged_in,
    mysql_log,
    read_for_ever,
    rows_in,
    serving,
    write_index,
    write_mysql_files,
)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "truncated in the middle of event"),
        (b"\xfebin", "truncated in the middle of event"),
        (bytes(LogBuilder().data), "truncated in the middle of event"),
        (b"junk" * 99, "Could not open log file: .* is no binary log"),
    ],
)
async def test_a_file_between_others_that_holds_nothing(tmp_path: Path, content: bytes, told: str) -> None:
    """Such a file is an error: if the server waited for it, the files after it would never be sent."""
    names = write_mysql_files(tmp_path)
    (tmp_path / names[1]).write_bytes(content)
    async with serving(tmp_path) as server, logged_in(server, CHECKSUM_ASKED) as session:
        session.start_dump(names[0], 4, 77, 0)
        events = await session.read_events(10)
        while rows_in(events) != [1, 2]:
            events += await session.read_events(10)
        with pytest.raises(ServerError, match=told):
            await read_for_ever(session)


async def test_a_gtid_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The connection was closed without an error, and a replica asked again and again."""
    names = write_mysql_files(tmp_path)
    log = mysql_log()
    log.transaction([1], sequence=1)
    log.add(EventType.GTID, bytes(5))
    (tmp_path / names[0]).write_bytes(log.data)
    async with serving(tmp_path) as server:
        with pytest.raises(ServerError, match=f"25 bytes wanted, 5 left .{names[0]}"):
            await dumped(server, gtid_set=GtidSet(""))
    assert "defect" not in caplog.text


@pytest.mark.parametrize("has_index", [True, False])
async def test_a_file_is_missing_between_others(tmp_path: Path, has_index: bool) -> None:
    names = write_mysql_files(tmp_path)
    (tmp_path / names[1]).unlink()
    write_index(tmp_path, names[0], names[2])
    if not has_index:
        (tmp_path / "bin.index").unlink()
    async with serving(tmp_path) as server:
        with pytest.raises(ServerError, match="could not find next log"):
            await dumped(server, names[0])
        assert rows_in(await dumped(server, names[2])) == [5, 6]


async def test_files_that_have_been_renamed(tmp_path: Path) -> None:
    for name in write_mysql_files(tmp_path):
        (tmp_path / name).rename(tmp_path / f"copy-{name}")
    async with serving(tmp_path / "copy-bin.*") as server:
        assert rows_in(await dumped(server)) == [1, 2, 3, 4, 5, 6]


async def test_another_log_comes_into_the_directory(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        (tmp_path / "relay-bin.index").write_text("./relay-bin.000001\n")
        assert rows_in(await dumped(server)) == [1, 2, 3, 4, 5, 6]
        (tmp_path / "bin.000004").write_bytes(mysql_log(gtids(1, 6)).data)
        write_index(tmp_path, *names, "bin.000004")
        async with logged_in(server) as session:
            assert len(await session.query("SHOW BINARY LOGS")) == 4
