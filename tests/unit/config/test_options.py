"""Options: DSNs, arguments, and their errors, which name the option and never show the password."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import re
import ssl
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replica
from protocol.binlog import events
from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import BinlogPosition, Checkpoint
from replica.config.options import Options, parse_dsn
from replica.config.selection import parse_start
from replica.stream.binlog_stream import BinlogStream

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SECRET = "s3cr3t-Passw0rd"


def build(dsn: str | None = "mysql://repl@db", **given: object) -> Options:
    return Options.build(dsn, given)


def test_a_whole_dsn() -> None:
    options = build(
        "mysql://repl:secret@db.example:3307/?server_id=42&tls=required&heartbeat=5&tables=a.*,b.c"
    )
    assert (options.host, options.port, options.user, options.password) == (
        "db.example",
        3307,
        "repl",
        "secret",
    )
    assert (options.server_id, options.tls, options.heartbeat) == (42, "required", 5.0)
    assert options.tables == ("a.*", "b.c")


def test_defaults() -> None:
    options = build("mysql://repl@")
    assert (options.host, options.port, options.password) == ("localhost", 3306, "")
    assert (options.start, options.stop, options.tables, options.exclude_tables) == ("now", None, ("*",), ())
    assert (options.tls, options.heartbeat, options.connect_timeout) == ("preferred", 30, 10)
    assert options.verify_checksum
    assert options.on_schema_mismatch == "error"


def test_without_a_dsn() -> None:
    options = build(None, host="db", port=3310, user="repl", password=SECRET)
    assert (options.address, options.user) == ("db:3310", "repl")


def test_arguments_win_over_the_dsn() -> None:
    options = build("mysql://repl:secret@db:3307/?heartbeat=5", user="other", heartbeat=7)
    assert (options.user, options.heartbeat, options.port) == ("other", 7, 3307)


def test_none_is_not_given() -> None:
    assert build("mysql://repl@db:3307", port=None).port == 3307


def test_percent_encoding_and_ipv6() -> None:
    options = build("mysql://r%40x:p%2F%3A%23%C3%BC@[::1]:3307/")
    assert (options.user, options.password) == ("r@x", "p/:#ü")
    assert (options.host, options.port, options.address) == ("::1", 3307, "[::1]:3307")


@given(st.text(min_size=1), st.text())
def test_any_user_and_password_survive_a_dsn(user: str, password: str) -> None:
    try:
        dsn = f"mysql://{quote(user, safe='')}:{quote(password, safe='')}@db"
    except UnicodeEncodeError:  # no DSN holds a lone surrogate
        return
    options = build(dsn)
    assert (options.user, options.password) == (user, password)


def test_a_unix_socket_is_not_encrypted_unless_asked_for() -> None:
    assert build(None, user="repl", unix_socket="/run/mysqld.sock").tls == "disabled"
    assert build("mysql://repl@/?unix_socket=%2Frun%2Fmysqld.sock").address == "/run/mysqld.sock"
    assert build(None, user="repl", unix_socket=Path("/run/x"), tls="required").tls == "required"
    assert build(None, user="repl", unix_socket="/run/x", tls_ca="/of/other/servers.pem").tls == "disabled"


def test_the_password_is_in_no_repr() -> None:
    options = build(f"mysql://repl:{SECRET}@db")
    assert SECRET not in repr(options)
    assert SECRET not in repr(BinlogStream(options))


def test_identity_is_random_and_kept() -> None:
    identities = {(options.server_id, options.replica_uuid) for options in (build() for _ in range(50))}
    assert len(identities) == 50
    assert all(0 < server_id < 1 << 32 for server_id, _ in identities)


def test_options_are_frozen() -> None:
    with pytest.raises(AttributeError):
        build().port = 1  # type: ignore[misc]


BAD_DSNS = [
    ("postgres://repl@db", "mysql://"),
    ("repl@db", "mysql://"),
    ("mysql:repl@db", "mysql://"),
    (f"mysql://repl:{SECRET}@db:port", "number"),
    (f"mysql://repl:{SECRET}@db:99999", "number"),
    (f"mysql://repl:{SECRET}@db:0", "port"),
    (f"mysql://repl:{SECRET}/x@db", "percent-encoded"),
    (f"mysql://repl:{SECRET}#x@db", "percent-encoded"),
    (f"mysql://repl:{SECRET}@[::1", "percent-encoded"),
    (f"mysql://repl:{SECRET}%FF@db", "password"),
    (f"mysql://repl:{SECRET}@db/shop", "tables="),
    (f"mysql://repl:{SECRET}@db/?nope=1", "'nope'"),
    (f"mysql://repl:{SECRET}@db/?heartbeat=1&heartbeat=2", "twice"),
    (f"mysql://repl:{SECRET}@db/?user=other", "twice"),
    (f"mysql://repl:{SECRET}@db/?heartbeat", "option=value"),
    (f"mysql://repl@db/?password={SECRET}&{SECRET}", "option=value"),
    (f"mysql://repl@db/?password={SECRET}%FF", "option=value"),
    (f"mysql://repl:{SECRET}@db/?columns=a", "only as an argument"),
    (f"mysql://repl:{SECRET}@db/?heartbeat=soon", "heartbeat"),
    ("mysql://db", "user"),
    ("mysql://@db", "user"),
]


@pytest.mark.parametrize(("dsn", "hint"), BAD_DSNS)
def test_a_bad_dsn_is_told_without_the_password(dsn: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(dsn)
    assert hint in str(caught.value)
    shown = [caught.value, caught.value.__cause__, caught.value.__context__]
    assert not any(SECRET in str(error) for error in shown)


BAD_ARGUMENTS: list[tuple[str, object]] = [
    ("host", 1),
    ("port", 0),
    ("port", 65536),
    ("port", True),
    ("port", "x"),
    ("user", b"repl"),
    ("password", b"secret"),
    ("unix_socket", ""),
    ("option_file", "my\0.cnf"),
    ("report_host", "x" * 256),
    ("report_host", "\udcff"),
    ("server_id", 0),
    ("server_id", 1 << 32),
    ("server_id", 1.5),
    ("report_port", -1),
    ("start", "yesterday"),
    ("start", 5),
    ("start", datetime(2026, 1, 1)),
    ("start", "2026-01-01T00:00:00"),
    ("start", "2026-13-01T00:00:00+00:00"),
    ("start", BinlogPosition("binlog.000001", 0)),
    ("stop", "earliest"),
    ("stop", Checkpoint("binlog.000001", 4)),
    ("stop", datetime(2026, 1, 1)),
    ("tables", "orders"),
    ("tables", "shop."),
    ("tables", ".orders"),
    ("tables", []),
    ("tables", 5),
    ("tables", [5]),
    ("exclude_tables", ["shop"]),
    ("events", "QueryEvent"),
    ("events", int),
    ("events", [replica.QueryEvent, 5]),
    ("events", 5),
    ("columns", ["id"]),
    ("columns", {"orders": ["id"]}),
    ("columns", {"shop.orders": "id"}),
    ("columns", {"shop.orders": [1]}),
    ("tls", "yes"),
    ("tls", None.__class__),
    ("tls_ca", "/nowhere/ca.pem"),
    ("tls_ca", "ca\0.pem"),
    ("tls_cert", "/nowhere/cert.pem"),
    ("server_public_key_path", "/nowhere/key.pem"),
    ("get_server_public_key", "perhaps"),
    ("enable_cleartext_plugin", "perhaps"),
    ("ssl_context", "context"),
    ("heartbeat", -1),
    ("heartbeat", float("nan")),
    ("heartbeat", float("inf")),
    ("heartbeat", True),
    ("heartbeat", 10**400),
    ("connect_timeout", 0),
    ("verify_checksum", "maybe"),
    ("verify_checksum", 1),
    ("on_schema_mismatch", "ignore"),
    ("checkpoints", "shop.ckpt"),
    ("checkpoints", replica.FileCheckpointStore),
    ("checkpoints", replica.FileSchemaStore("shop.schemas")),
]


@pytest.mark.parametrize(("name", "value"), BAD_ARGUMENTS)
def test_a_bad_argument_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}"):
        build(**{name: value})


def test_the_name_of_an_event_class_is_no_class() -> None:
    with pytest.raises(ConfigurationError, match=r"^events: event classes, not 'WriteRowsEvent'"):
        build(events="WriteRowsEvent")


def test_a_dsn_that_is_no_text() -> None:
    with pytest.raises(ConfigurationError, match=r"^dsn: "):
        replica.connect(b"mysql://repl:secret@db1")  # type: ignore[arg-type]


def test_two_stores_in_one_file() -> None:
    """Each wrote over what the other needs, and the next start failed."""
    with pytest.raises(ConfigurationError, match=r"^schemas: .*/shop\.ckpt is the file of checkpoints="):
        build(
            checkpoints=replica.FileCheckpointStore("shop.ckpt"),
            schemas=replica.FileSchemaStore("./shop.ckpt"),
        )
    build(
        checkpoints=replica.FileCheckpointStore("shop.ckpt"), schemas=replica.FileSchemaStore("shop.schemas")
    )


def test_a_wrong_password_type_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(password=SECRET.encode())
    assert SECRET not in str(caught.value)


def test_options_that_exclude_one_another() -> None:
    context = ssl.create_default_context()
    with pytest.raises(ConfigurationError, match="ssl_context"):
        build(ssl_context=context, tls="required")
    for name in ("tls_ca", "tls_cert", "tls_key"):
        with pytest.raises(ConfigurationError, match=f"{name} and ssl_context"):
            build(ssl_context=context, **{name: "x.pem"})
    with pytest.raises(ConfigurationError, match="tls_cert"):
        build(tls_key="key.pem")
    for mode in ("disabled", "preferred", "required", "verify-password"):
        with pytest.raises(ConfigurationError, match="tls_ca needs tls='verify-ca'"):
            build(tls=mode, tls_ca="ca.pem")
    assert build(ssl_context=context).ssl_context is context
    assert build(ssl_context=context).tls == "required"


@pytest.mark.parametrize(
    ("mode", "verify", "check_hostname"),
    [
        ("preferred", ssl.CERT_NONE, False),
        ("required", ssl.CERT_NONE, False),
        ("verify-ca", ssl.CERT_REQUIRED, False),
        ("verify-identity", ssl.CERT_REQUIRED, True),
        ("verify-password", ssl.CERT_NONE, False),
    ],
)
def test_what_each_tls_mode_verifies(mode: str, verify: ssl.VerifyMode, check_hostname: bool) -> None:
    context = build(tls=mode).ssl_context
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (verify, check_hostname)


def test_tls_disabled_has_no_context() -> None:
    assert build(tls="disabled").ssl_context is None


AWARE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STARTS: list[tuple[object, object]] = [
    ("now", "now"),
    ("earliest", "earliest"),
    ("binlog.000003:154", BinlogPosition("binlog.000003", 154)),
    ("mysql-bin.000003:154", BinlogPosition("mysql-bin.000003", 154)),
    (f"{UUID}:1-5", GtidSet(f"{UUID}:1-5")),
    (f"{UUID}:1-5:11,\n{UUID}:20", GtidSet(f"{UUID}:1-5:11:20")),
    ("0-1-100,1-2-5", MariadbGtidSet("0-1-100,1-2-5")),
    ("2026-1-15", MariadbGtidSet("2026-1-15")),
    ("2026-01-02T03:04:05Z", AWARE),
    ("2026-01-02 03:04:05+00:00", AWARE),
    (AWARE, AWARE),
    (Checkpoint("binlog.000001", 4), Checkpoint("binlog.000001", 4)),
]


@pytest.mark.parametrize(("given_start", "expected"), STARTS)
def test_every_kind_of_start(given_start: object, expected: object) -> None:
    assert build(start=given_start).start == expected


def test_a_start_in_a_dsn_is_text() -> None:
    assert build("mysql://repl@db/?start=binlog.000003:154").start == BinlogPosition("binlog.000003", 154)
    assert build("mysql://repl@db/?stop=2026-01-02T03:04:05%2B00:00").stop == AWARE


def test_every_zone_is_a_zone() -> None:
    zone = timezone(timedelta(hours=-5))
    start = build(start=datetime(2026, 1, 1, tzinfo=zone)).start
    assert start == datetime(2026, 1, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize("word", ["latest", "NOW", "end"])
def test_a_word_that_is_no_start_is_told_the_words_that_are(word: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"^start: {word!r} is not a place: now is the end of the log"
    ):
        build(start=word)


@given(st.text(max_size=40))
def test_any_text_is_a_start_or_a_configuration_error(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        parse_start(text)


@given(st.text(max_size=40))
def test_any_text_is_a_dsn_or_a_configuration_error(text: str) -> None:
    for dsn in (text, f"mysql://{text}"):
        with contextlib.suppress(ConfigurationError):
            parse_dsn(dsn)


def test_one_event_class_or_several() -> None:
    assert build(events=replica.QueryEvent).events == (replica.QueryEvent,)
    assert build(events=[replica.RowsEvent, replica.XidEvent]).events == (replica.RowsEvent, replica.XidEvent)


def test_connect_takes_what_options_have() -> None:
    arguments = set(inspect.signature(replica.connect).parameters) - {"dsn"}
    kept: dict[str, Any] = dict.fromkeys(arguments)
    stream = replica.connect("mysql://repl@db", **kept)
    assert isinstance(stream, BinlogStream)
    ours = {
        "hosts",
        "replica_uuid",
        "server_public_key",
        "cells",
        "warned",
        "server",
        "snapshot_restarts_after_ddl",
    }
    assert arguments == {option.name for option in fields(Options)} - ours


def test_what_a_dsn_cannot_hold_is_what_the_docstring_says() -> None:
    refused = set()
    for name in inspect.signature(replica.connect).parameters:
        try:
            parse_dsn(f"mysql://h/?{name}=x")
        except ConfigurationError as error:
            refused |= {name} if "only as an argument" in str(error) else set()
    [sentence] = re.findall(r"may stand in the DSN, except(.*?)\.", replica.connect.__doc__ or "", re.DOTALL)
    assert set(re.findall(r"``(\w+)``", sentence)) == refused


def test_errors_survive_pickling() -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(port=0)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_every_event_class_is_public() -> None:
    classes = {
        name
        for name, value in vars(events).items()
        if isinstance(value, type) and issubclass(value, events.Event) and not name.startswith("_")
    }
    assert classes <= set(replica.__all__)


def test_every_public_name_is_there() -> None:
    assert [name for name in replica.__all__ if not hasattr(replica, name)] == []
    assert len(set(replica.__all__)) == len(replica.__all__)


class _Hook:
    async def __call__(self, status: object) -> None: ...


@pytest.mark.parametrize("hook", [_Hook(), _Hook().__call__, partial(_Hook().__call__)])
def test_a_hook_that_nothing_would_await(hook: object) -> None:
    with pytest.raises(ConfigurationError, match="on_status: a plain function"):
        build(on_status=hook)
    assert build(on_status=print).on_status is print


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("tabels", r" \(did you mean tables\?\)"),
        ("tlsCa", r" \(did you mean tls_ca\?\)"),
        ("public-key", r" \(did you mean server_public_key_path or get_server_public_key\?\)"),
        ("quark", ""),
        ("", ""),
    ],
)
def test_a_wrong_option_of_a_dsn_names_the_near_one(given: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^dsn: there is no option '{given}'{hint}$"):
        build(f"mysql://repl@db?{given}=shop.*")


def test_no_event_class_is_no_selection() -> None:
    """The stream yielded nothing, for ever."""
    with pytest.raises(ConfigurationError, match=r"^events: the list is empty"):
        build(events=[])
