"""``mysql-replica relay`` and ``serve`` as processes: they start, work, and end after a signal or a kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from protocol.errors import AuthenticationError
from replica.cli import main
from replica.config.options import Options
from replica.server.identity import ServerKeys, create_certificate
from replica.source.session import Session
from tests.support.served import PASSWORD, USER, dumped, rows_in, serving, write_mysql_files
from tests.support.socket_source import until


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    write_mysql_files(path)
    return path


class Process:
    """A process of the command line, and the messages that it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.notes = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def run(cls, *arguments: str, **environment: str) -> AsyncIterator[Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "replica",
            *arguments,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | environment,
        )
        try:
            yield cls(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def noted(self, pattern: str) -> re.Match[str]:
        """Wait for a message that matches ``pattern``."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while (found := re.search(pattern, self.notes)) is None:
                line = await self.process.stderr.readline()
                assert line, f"it has ended: {self.notes}"
                self.notes += line.decode()
        return found

    async def end(self) -> int:
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            self.notes += (await self.process.stderr.read()).decode()
            return await self.process.wait()


async def test_relay_once_and_serve(source: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    async with serving(source) as server:
        dsn = f"mysql://{USER}:p%C3%A4ssword-1@127.0.0.1:{server.port}/?tls=disabled"
        async with Process.run("relay", dsn, str(copied), "--once") as relay:
            assert await relay.end() == 0
            assert f"127.0.0.1:{server.port} -> {copied}" in relay.notes
            assert "stopped at bin.000003:" in relay.notes
            assert PASSWORD not in relay.notes
    for name in ("bin.000001", "bin.000002", "bin.000003", "bin.index"):
        assert (copied / name).read_bytes() == (source / name).read_bytes()
    listen = ("--listen", "127.0.0.1:0", "--user", USER)
    async with Process.run("serve", str(copied), *listen, MYSQL_PWD=PASSWORD) as serve:
        found = await serve.noted(r"serving .*copy \(9\.7\.4\) at 127\.0\.0\.1:(\d+)")
        given = {"host": "127.0.0.1", "port": int(found[1]), "user": USER, "password": PASSWORD}
        for tls in ("disabled", "required"):
            session = await Session.open(Options.build(None, given | {"tls": tls}))
            assert await session.query_value("SELECT @@version") == "9.7.4"
            await session.aclose()
        with pytest.raises(AuthenticationError):
            await Session.open(Options.build(None, given | {"password": "wrong"}))
        serve.process.send_signal(signal.SIGTERM)
        assert await serve.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_relay_ends_in_order(source: Path, tmp_path: Path, number: signal.Signals) -> None:
    copied = tmp_path / "copy"
    async with serving(source) as server:
        dsn = f"mysql://{USER}:p%C3%A4ssword-1@127.0.0.1:{server.port}/?tls=disabled"
        async with Process.run(
            "relay", dsn, str(copied), "--from", "bin.000002:4", "--server-id", "77"
        ) as relay:
            await until(lambda: any(one.is_waiting and one.server_id == 77 for one in server.replicas))
            last = (source / "bin.000003").read_bytes()
            await until(
                lambda: (copied / "bin.000003").exists() and (copied / "bin.000003").read_bytes() == last
            )
            relay.process.send_signal(number)
            assert await relay.end() == 0
            assert "stopped at bin.000003:" in relay.notes
    assert not (copied / "bin.000001").exists()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
async def test_under_nohup_the_end_of_the_terminal_is_ignored(source: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        given = ("--no-password", "--listen", "127.0.0.1:0")
        async with Process.run("serve", str(source), *given) as serve:
            await serve.noted("serving")
            status = await asyncio.to_thread(Path(f"/proc/{serve.process.pid}/status").read_text)
            serve.process.send_signal(signal.SIGTERM)
            assert await serve.end() == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    ignored = re.search(r"SigIgn:\s*(\w+)", status)
    assert ignored is not None
    assert int(ignored[1], 16) & 1 << signal.SIGHUP - 1


@pytest.mark.thorough
async def test_relay_killed_again_and_again(source: Path, tmp_path: Path) -> None:
    """After a kill at any moment the files are a prefix of the source's, and the next run continues."""
    copied = tmp_path / "copy"
    async with serving(source) as server:
        dsn = f"mysql://{USER}:p%C3%A4ssword-1@127.0.0.1:{server.port}/?tls=disabled"
        for _ in range(3):
            async with Process.run("relay", dsn, str(copied)) as relay:
                await until(lambda: bool(server.replicas))
                relay.process.kill()
                await relay.end()
            await until(lambda: not server.replicas)
            for path in copied.glob("bin.0*"):
                assert (source / path.name).read_bytes().startswith(path.read_bytes())
        async with Process.run("relay", dsn, str(copied), "--once") as relay:
            assert await relay.end() == 0
    async with serving(copied) as downstream:
        assert rows_in(await dumped(downstream)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("arguments", "code", "note"),
    [
        (["relay", "mysql://repl@127.0.0.1:1/", "{}/copy", "--once"], 1, "is the server running"),
        (
            ["relay", "mysql://repl@127.0.0.1:1/", "{}/copy", "--from", "bin.000001:500"],
            2,
            "begins with a whole file",
        ),
        (["relay", "nonsense", "{}/copy"], 2, "dsn"),
        (["relay", "mysql://repl@127.0.0.1:1/", "{}/source"], 2, "that no relay has written"),
        (["serve", "{}/source"], 2, "set MYSQL_PWD or give --password-file"),
        (["serve", "{}/source", "--no-password", "--listen", "nowhere"], 2, "HOST:PORT"),
        (["serve", "{}/source", "--no-password", "--listen", "127.0.0.1:65536"], 2, "HOST:PORT"),
        (["relay", "mysql://repl@h", "{}/copy", "--sync-interval", "nan"], 2, "--sync-interval"),
        (["relay", "mysql://repl@h", "{}/copy", "--metrics", "127.0.0.1:65536"], 2, "HOST:PORT"),
        (["serve", "{}/source", "--no-password", "--listen", "192.0.2.99:1"], 2, "cannot listen at"),
        (["serve", "{}/nothing", "--no-password"], 2, "nothing"),
        (["serve", "{}/source", "--no-password", "--tls-cert", "{}/nothing"], 2, "--tls-cert"),
        (["serve", "{}/source", "--no-password", "--no-tls", "--require-tls"], 2, "--require-tls"),
        (["serve", "{}/source", "--password-file", "{}/nothing"], 2, "nothing"),
        (["serve", "{}/source", "--password-file", "/dev/null"], 2, "first line of /dev/null is empty"),
        (
            ["serve", "{}/source", "--no-password", "--tls-key", "{}/nothing"],
            2,
            "give the certificate as well",
        ),
        (["serve", "{}/source", "--no-password", "--no-tls", "--tls-cert", "x"], 2, "exclude one another"),
        (["serve", "{}/source", "--no-password", "--server-id", "4294967296"], 2, "--server-id"),
        (["serve", "{}/source", "--no-password", "--server-uuid", "x"], 2, "--server-uuid"),
    ],
)
def test_what_cannot_be_done(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    note: str,
) -> None:
    filled = [argument.format(tmp_path) for argument in arguments]
    assert main(filled) == code
    error = capsys.readouterr().err
    assert note in error.splitlines()[-1]
    assert "Traceback" not in error


def test_an_encrypted_key_is_not_asked_for(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = ServerKeys().private_key()
    encryption = serialization.BestAvailableEncryption(b"secret")
    pem = serialization.Encoding.PEM
    data = create_certificate(key).public_bytes(pem)
    data += key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption)
    (tmp_path / "tls.pem").write_bytes(data)
    assert main(["serve", str(source), "--no-password", "--tls-cert", str(tmp_path / "tls.pem")]) == 2
    assert "--tls-key: the key is encrypted" in capsys.readouterr().err


async def test_a_password_that_is_no_text(source: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"p\xff\n")
    given = ("--listen", "127.0.0.1:0", "--password-file", str(tmp_path / "password"), "--no-tls")
    async with Process.run("serve", str(source), *given) as serve:
        found = await serve.noted(r"at 127\.0\.0\.1:(\d+)")
        options = Options.build(
            None, {"host": "127.0.0.1", "port": int(found[1]), "user": "repl", "password": "p"}
        )
        with pytest.raises(AuthenticationError):
            await Session.open(options)


async def test_a_password_from_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\r\nmore\n")
    given = ("--listen", "[::1]:0", "--password-file", str(tmp_path / "password"), "--no-tls")
    async with Process.run("serve", str(source / "bin.index"), *given) as serve:
        found = await serve.noted(r"at ::1:(\d+)")
        options = Options.build(
            None, {"host": "::1", "port": int(found[1]), "user": "repl", "password": PASSWORD}
        )
        session = await Session.open(options)
        assert not session.uses_tls
        await session.aclose()
