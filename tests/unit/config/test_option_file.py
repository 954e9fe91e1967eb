"""Option files: MySQL's syntax to the letter, precedence of arguments, DSN and file, and no secret in any output."""

from __future__ import annotations

import contextlib
import logging
import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replica
from protocol.errors import ConfigurationError
from replica.config.option_file import read_option_file
from replica.config.options import Options
from tests.support.option_values import OPTION_VALUES
from tests.support.socket_source import SocketSource, serving

SECRET = "s3cr3t-Passw0rd"


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def cnf(tmp_path: Path) -> Path:
    return tmp_path / "my.cnf"


def read(cnf: Path, text: str) -> dict[str, str]:
    return read_option_file(write(cnf, text))


def build(cnf: Path, text: str, dsn: str | None = None, **arguments: object) -> Options:
    return Options.build(dsn, {"option_file": write(cnf, text), **arguments})


# The syntax.


def test_a_file_as_people_have_it(cnf: Path) -> None:
    text = """
        # what every client needs
        ; an old comment
        [mysqld]
        port = 3399
        user = mysql
        [client]
        user     = repl
        password = "a#b;c \\"d\\" 'e'"   # the comment begins here
        host     = db.example
        port=3307
        default-character-set = utf8mb4
        [mysql]
        password = another
        [mysql-replica]
        port = 3308
    """
    assert read(cnf, text) == {
        "user": "repl",
        "password": "a#b;c \"d\" 'e'",
        "host": "db.example",
        "port": "3308",
    }


@pytest.mark.parametrize(("written", "meant"), OPTION_VALUES)
def test_quotes_escapes_and_comments(cnf: Path, written: str, meant: str) -> None:
    assert read(cnf, f"[client]\npassword={written}\nport=1\n") == {"password": meant, "port": "1"}
    assert read(cnf, f"[client]\r\n\tpassword  =  {written}\r\n") == {"password": meant}


def test_names_are_the_same_with_hyphen_and_underscore(cnf: Path) -> None:
    for name in ("ssl-ca", "ssl_ca", "loose-ssl-ca", "loose_ssl_ca"):
        assert read(cnf, f"[client]\n{name}=ca.pem") == {"tls_ca": "ca.pem"}


def test_the_last_word_counts(cnf: Path) -> None:
    text = "[mysql-replica]\nuser=first\n[client]\nuser=second\n[ client ]\nuser=other\n[client ]\nuser=third"
    assert read(cnf, text) == {"user": "third"}


SWITCHES = [
    ("ssl-mode=VERIFY_IDENTITY", {"tls": "verify-identity"}),
    ("ssl_mode = preferred", {"tls": "preferred"}),
    ("ssl", {"tls": "required"}),
    ("ssl=0", {"tls": "disabled"}),
    ("skip-ssl", {"tls": "disabled"}),
    ("skip_ssl=OFF", {"tls": "required"}),
    ("ssl-verify-server-cert", {"tls": "verify-identity"}),
    ("disable-ssl-verify-server-cert", {}),
    ("compress", {"compression": "zlib,uncompressed"}),
    ("compress=off", {"compression": "uncompressed"}),
    ("compression-algorithms=zstd,zlib", {"compression": "zstd,zlib"}),
    ("enable-cleartext-plugin", {"enable_cleartext_plugin": "true"}),
    ("get-server-public-key=0", {"get_server_public_key": "false"}),
    ("server-public-key-path=key.pem", {"server_public_key_path": "key.pem"}),
    ("connect-timeout=5", {"connect_timeout": "5"}),
    ("socket=/run/m.sock", {"unix_socket": "/run/m.sock"}),
    ("socket=/run/m.sock\nhost=LOCALHOST", {"unix_socket": "/run/m.sock", "host": "LOCALHOST"}),
    ("socket=/run/m.sock\nhost=db", {"host": "db"}),
    ("socket=/run/m.sock\nprotocol=TCP", {}),
    ("no-auto-rehash\nskip-column-names\nsafe-updates", {}),
]


@pytest.mark.parametrize(("text", "options"), SWITCHES)
def test_what_their_options_mean(cnf: Path, text: str, options: dict[str, str]) -> None:
    assert read(cnf, f"[client]\n{text}\n") == options


def test_includes(tmp_path: Path, cnf: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    write(folder / "b.cnf", "[client]\nuser=b\npassword=b")
    write(folder / "a.cnf", "[client]\nuser=a\nhost=a")
    write(folder / "c.txt", "[client]\nuser=c")
    write(tmp_path / "one.cnf", "[client]\nport=1")
    text = (
        f"[client]\nuser=before\n!includedir {folder}\n! include  {tmp_path}/one.cnf \nport=2\n!nonsense x\n"
    )
    assert read(cnf, text) == {"user": "b", "host": "a", "password": "b", "port": "2"}
    assert caplog.messages == []
    assert read(cnf, f"!include {tmp_path}/nowhere.cnf\n[client]\nport=3") == {"port": "3"}
    assert "nowhere.cnf does not exist" in caplog.text


def test_a_file_that_includes_itself(cnf: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(cnf, f"[client]\nuser=repl\n!include {cnf}\n") == {"user": "repl"}
    assert caplog.text.count("nest at most 10 deep") == 1


def test_a_path_with_a_null_character(cnf: Path) -> None:
    for text in ("[client]\n!include a\0b\n", "!includedir a\0b\n"):
        with pytest.raises(ConfigurationError, match="embedded null"):
            read(cnf, text)


def test_what_everybody_can_write_to_is_ignored(cnf: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(cnf, f"[client]\npassword={SECRET}\nuser=repl\n")
    cnf.chmod(0o606)
    assert read_option_file(str(cnf)) == {}
    assert caplog.messages == [f"option_file: {cnf} is ignored, because it is world-writable -- chmod o-w"]
    cnf.chmod(0o664)
    assert read_option_file(str(cnf))["user"] == "repl"
    other = cnf.with_name("open.cnf")
    write(other, "[client]\nuser=intruder")
    other.chmod(0o666)
    assert read(cnf, f"[client]\nuser=repl\n!include {other}\n") == {"user": "repl"}


WRONG = [
    ("user=repl\n[client]\n", "line 1: an option stands before the first group"),
    (f"\n\n[client\npassword={SECRET}", "line 3: the group's closing ] is missing"),
    (f"[client]\n!includedir\npassword={SECRET}", "line 2: !includedir needs a path"),
    (f"[client]\n!includedir /nowhere/at/all\npassword={SECRET}", "line 2: /nowhere/at/all: No such file"),
    ("[client]\npassword\n", "line 2: password has no value"),
    ("[client]\nssl-mode\n", "line 2: ssl-mode has no value"),
    ("[client]\nuser=r\nport=many\n", "port: a whole number"),
    ("[client]\nuser=r\nssl-mode=SOMETIMES\n", "tls: one of"),
]


@pytest.mark.parametrize(("text", "hint"), WRONG)
def test_a_bad_file_is_named_with_its_line(cnf: Path, text: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(cnf, text)
    assert str(caught.value).startswith(f"option_file: {cnf}")
    assert hint in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path, cnf: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^option_file: .*nowhere.cnf: No such file"):
        Options.build(None, {"option_file": tmp_path / "nowhere.cnf"})
    with pytest.raises(ConfigurationError, match=r"^option_file: .*: Is a directory"):
        Options.build(None, {"option_file": tmp_path})
    cnf.write_bytes(b"[client]\npassword=" + SECRET.encode() + b"\xff\n")
    with pytest.raises(ConfigurationError, match="the file is not UTF-8") as caught:
        Options.build(None, {"option_file": cnf})
    assert caught.value.__context__ is None


@given(st.text(max_size=60))
def test_any_text_is_a_file_or_a_configuration_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.cnf"
    path.write_bytes(f"[client]\n{text}".encode("utf-8", "replace"))
    path.chmod(0o600)
    with contextlib.suppress(ConfigurationError):
        read_option_file(str(path))


# Precedence.


def test_arguments_win_over_the_dsn_and_that_over_the_file(cnf: Path) -> None:
    text = "[client]\nuser=f\npassword=f\nhost=f\nport=1\nconnect-timeout=1"
    options = build(cnf, text, "mysql://d:d@d/?connect_timeout=2", user="a", port=3)
    assert (options.user, options.password, options.host) == ("a", "d", "d")
    assert (options.port, options.connect_timeout) == (3, 2)
    options = build(cnf, text)
    assert (options.user, options.password, options.host, options.port) == ("f", "f", "f", 1)
    assert options.option_file == str(cnf)


def test_a_dsn_may_name_the_file(cnf: Path) -> None:
    write(cnf, f"[client]\nuser=repl\npassword={SECRET}\n")
    options = Options.build(f"mysql://db2:3310/?option_file={cnf}", {})
    assert (options.user, options.password, options.address) == ("repl", SECRET, "db2:3310")


def test_no_file_is_read_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".my.cnf", f"[client]\npassword={SECRET}\nuser=me\n")
    assert Options.build("mysql://repl@db", {}).password == ""
    assert Options.build("mysql://repl@db", {"option_file": False}).password == ""
    for asked in (True, "true", "~/.my.cnf"):
        options = Options.build("mysql://repl@db", {"option_file": asked})
        assert (options.user, options.password) == ("repl", SECRET)
    assert Options.build("mysql://repl@db/?option_file=true", {}).password == SECRET
    assert Options.build("mysql://repl@db/?option_file=false", {}).option_file is None


def test_the_environment_comes_last(cnf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", "from the environment")
    assert Options.build("mysql://repl@db", {}).password == "from the environment"
    assert Options.build("mysql://repl@db", {"password": "given"}).password == "given"
    assert Options.build("mysql://repl:dsn@db", {}).password == "dsn"
    # An empty password counts as given.
    assert Options.build("mysql://repl:@db", {}).password == ""
    assert Options.build("mysql://repl@db", {"password": ""}).password == ""
    assert build(cnf, "[client]\nuser=repl\npassword=file").password == "file"
    assert build(cnf, "[client]\nuser=repl\npassword=").password == ""
    assert build(cnf, "[client]\nuser=repl").password == "from the environment"


def test_a_given_place_is_not_moved_by_the_file(cnf: Path) -> None:
    text = "[client]\nuser=repl\nsocket=/run/m.sock\nport=3399\n"
    assert build(cnf, text).address == "/run/m.sock"
    assert build(cnf, text, "mysql://db").address == "db:3399"
    assert build(cnf, text, host="db", port=1).address == "db:1"
    assert build(cnf, text, port=1).address == "localhost:1"
    assert build(cnf, "[client]\nuser=r\nhost=db", unix_socket="/run/x").address == "/run/x"
    assert build(cnf, "[client]\nuser=r\nhost=db1,db2:3307", port=5).address == "db1:5, db2:3307"


def test_tls_of_the_file_and_of_arguments(cnf: Path) -> None:
    import ssl

    ca = "ssl-ca=/nowhere/ca.pem"
    context = ssl.create_default_context()
    assert (
        build(cnf, f"[client]\nuser=r\n{ca}\nssl-mode=DISABLED", ssl_context=context).ssl_context is context
    )
    # A mode that verifies nothing needs no authority.
    assert build(cnf, f"[client]\nuser=r\n{ca}\nssl-mode=REQUIRED").tls_ca is None
    assert build(cnf, f"[client]\nuser=r\n{ca}", tls="required").tls == "required"
    with pytest.raises(ConfigurationError, match=r"^tls_ca: /nowhere"):
        build(cnf, f"[client]\nuser=r\n{ca}")
    with pytest.raises(ConfigurationError, match=r"^tls_ca: /nowhere"):
        build(cnf, "[client]\nuser=r\nssl-mode=REQUIRED", tls_ca="/nowhere/other.pem")
    with pytest.raises(ConfigurationError, match=r"^tls_cert: /nowhere/mine"):
        build(cnf, "[client]\nuser=r\nssl-cert=/a\nssl-key=/b", tls_cert="/nowhere/mine.pem")


# No output shows the password.


async def test_the_password_is_in_no_text_of_ours(
    cnf: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in any repr, nor in a log message of any level, nor in the traceback of a failed connection."""
    caplog.set_level(logging.DEBUG)
    seen = []

    async def read(stream: replica.BinlogStream) -> None:
        async with stream:
            async for event in stream:
                seen.append(repr(event))

    async def fail(**given: object) -> None:
        policy = replica.ReconnectPolicy(initial=0.001, attempts=1)
        dsn = f"mysql://127.0.0.1:{source.port}/?start=earliest"
        stream = replica.connect(dsn, reconnect=policy, **given)  # type: ignore[arg-type]
        seen.append(repr(stream))
        with pytest.raises(replica.ReplicaError) as caught:
            await read(stream)
        seen.extend(traceback.format_exception(caught.value))
        seen.append(repr(stream.status))

    write(cnf, f"[client]\nuser=repl\npassword={SECRET}\nssl-mode=DISABLED\n")
    async with serving(SocketSource(closes_after_events=True)) as source:
        await fail(option_file=str(cnf))
        monkeypatch.setenv("MYSQL_PWD", SECRET)
        await fail(user="repl", tls="disabled")
        await fail(user="repl", password=SECRET, tls="disabled")
    await fail(user="repl", password=SECRET)
    options = Options.build("mysql://db", {"option_file": str(cnf)})
    seen += [repr(options), str(options), *caplog.messages]
    assert options.password == SECRET
    assert len(caplog.messages) >= 3
    assert not [text for text in seen if SECRET in text]
    # Spark pickles the options to its workers, password included.
    assert pickle.loads(pickle.dumps(Options.build("mysql://repl:x@db/?tls=disabled", {}))).password == "x"
