"""What a stream is to do: DSN and keyword arguments in, one frozen ``Options`` out.

Every mistake is a ``ConfigurationError`` that names the option, found before anything is connected. Nothing here
opens a connection; certificates are the only files that are read.
"""

import math
import re
import secrets
import socket
import ssl
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from protocol.binlog.cells import CellTable
from protocol.compression import COMPRESSIONS, CompressionName, create_codec
from protocol.errors import ConfigurationError
from protocol.records import record

from .checkpoint import CheckpointStore
from .reconnect import NoReconnect, ReconnectPolicy
from .selection import (
    SELECTION_READERS,
    OptionReader,
    Selection,
    one_of,
    read_boolean,
    read_text,
    wrong_value,
)
from .status import StatusHook
from .tls import TLS_MODES, VERIFYING, TlsMode, create_ssl_context, read_public_key

_Value = TypeVar("_Value")

# rpl_replica.h: SLAVE_MAX_HEARTBEAT_PERIOD, in seconds.
_MAX_HEARTBEAT: Final = 4294967
# com_register_slave() of servers before 8.0.17 refuses longer ones (HOSTNAME_LENGTH).
_MAX_REPORT_HOST: Final = 60
_SCHEMES: Final = ("mysql", "mariadb")


def _random_server_id() -> int:
    # 0 would make the source end the dump at the end of its log.
    return 1 + secrets.randbelow((1 << 32) - 1)


def _host_name() -> str:
    return socket.gethostname()[:_MAX_REPORT_HOST]


@record(slots=True, frozen=True, kw_only=True)
class Options(Selection):
    """The whole configuration of one stream. ``replica.connect`` says what each option means.

    ``server_id`` and ``replica_uuid`` are how the source tells replicas apart; they stay the same for the stream's
    life, so that a new connection takes the place of the old one. ``ssl_context`` is None where TLS is disabled.
    ``cells`` are a renderer's own, for what values become; no argument of ``replica.connect``.
    """

    host: str = "localhost"
    port: int = 3306
    user: str = ""
    password: str = field(default="", repr=False)
    unix_socket: str | None = None
    server_id: int = field(default_factory=_random_server_id)
    replica_uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    report_host: str = field(default_factory=_host_name)
    report_port: int | None = None
    tls: TlsMode = "preferred"
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    server_public_key_path: str | None = None
    server_public_key: bytes | None = field(default=None, repr=False)
    get_server_public_key: bool = True
    enable_cleartext_plugin: bool = False
    compression: tuple[CompressionName, ...] = ()
    heartbeat: float = 30.0
    connect_timeout: float = 10.0
    reconnect: ReconnectPolicy = field(default_factory=ReconnectPolicy)
    checkpoints: CheckpointStore | None = None
    checkpoint_interval: float = 1.0
    semi_sync: bool = False
    on_status: StatusHook | None = None
    status_interval: float = 10.0
    cells: CellTable | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Where the source is, for messages."""
        if self.unix_socket is not None:
            return self.unix_socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def build(cls, dsn: str | None, given: Mapping[str, object]) -> "Options":
        """Options from a DSN and keyword arguments; arguments win, None counts as not given.

        Raises ``ConfigurationError``, which names the option and never shows the password.
        """
        values = {} if dsn is None else parse_dsn(dsn)
        values |= {name: value for name, value in given.items() if value is not None}
        read = {name: _READERS[name](name, value) for name, value in values.items()}
        _choose_tls(read)
        if "server_public_key_path" in read:
            read["server_public_key"] = read_public_key(str(read["server_public_key_path"]))
        options = cls(**read)  # type: ignore[arg-type]
        if not options.user:
            raise ConfigurationError("user: a replica logs in as somebody: give user= or mysql://user@host")
        if options.ssl_context is None and options.tls != "disabled":
            context = create_ssl_context(options.tls, options.tls_ca, options.tls_cert, options.tls_key)
            object.__setattr__(options, "ssl_context", context)
        return options


def _choose_tls(read: dict[str, object]) -> None:
    """Give ``tls`` the mode that follows from the other options, and refuse what has no effect."""
    if "ssl_context" in read:
        for name in ("tls", "tls_ca", "tls_cert", "tls_key"):
            if name in read:
                raise ConfigurationError(
                    f"{name} and ssl_context exclude one another: the context has it all"
                )
        read["tls"] = "required"
    elif "tls_ca" in read:
        if read.setdefault("tls", "verify-ca") not in VERIFYING:
            raise ConfigurationError(
                "tls_ca needs tls='verify-ca' or 'verify-identity': others verify nothing"
            )
    elif read.get("unix_socket") is not None:
        # What never leaves the machine is not encrypted unless asked for, as in the servers' own clients.
        read.setdefault("tls", "disabled")
    if "tls_key" in read and "tls_cert" not in read:
        raise ConfigurationError("tls_key needs tls_cert, the certificate that it belongs to")


def parse_dsn(dsn: str) -> dict[str, object]:
    """``mysql://user:password@host:port/?option=value``: a value per option, those of the query still as text.

    User, password and host are percent-decoded; an IPv6 address stands in brackets. Options of the query have the
    names of ``replica.connect``'s arguments.
    """
    split = _split(dsn)
    if split is None:
        raise ConfigurationError(
            "dsn: it cannot be read; the port is a number, and characters such as / # ? @ : in a password are "
            "percent-encoded"
        )
    parts, port = split
    if parts.scheme not in _SCHEMES or not dsn.startswith(f"{parts.scheme}://"):
        raise ConfigurationError("dsn: it starts with mysql:// (or mariadb://)")
    if parts.fragment:
        raise ConfigurationError("dsn: a # in it is percent-encoded (%23)")
    if parts.path not in ("", "/"):
        raise ConfigurationError(
            "dsn: no database behind the host, a replica reads the whole source: choose with tables='shop.*'"
        )
    found: dict[str, object] = {"host": parts.hostname, "port": port}
    found |= {"user": parts.username, "password": parts.password}
    values = {
        name: _unquoted(name, value) if isinstance(value, str) else value
        for name, value in found.items()
        if value not in (None, "")
    }
    query = _query(parts.query)
    if query is None:
        raise ConfigurationError("dsn: behind the ? stand option=value pairs, joined by &")
    for name, text in query:
        if name not in _READERS:
            raise ConfigurationError(f"dsn: there is no option {name!r}")
        if name in values:
            raise ConfigurationError(f"dsn: {name} is given twice")
        if name not in _TEXT_OPTIONS:
            raise ConfigurationError(f"dsn: {name} cannot be given in a DSN, only as an argument")
        values[name] = text
    return values


# What these three catch quotes a part of the DSN, which may be the password. It must not even be the context of
# what is raised, so that is raised by the caller.


def _split(dsn: str) -> tuple[SplitResult, int | None] | None:
    try:
        parts = urlsplit(dsn)
        return parts, parts.port
    except ValueError:
        return None


def _query(query: str) -> list[tuple[str, str]] | None:
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=query != "", errors="strict")
    except ValueError:
        return None


def _unquote(text: str) -> str | None:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _unquoted(name: str, text: str) -> str:
    unquoted = _unquote(text)
    if unquoted is None:
        raise ConfigurationError(f"dsn: {name} is percent-encoded UTF-8")
    return unquoted


# One reader per option: from the text of a DSN or from an argument of the right type to the value in Options.


def _secret(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}: a text, not {type(value).__name__}")
    return value


def _path(name: str, value: object) -> str:
    path = getattr(value, "__fspath__", lambda: value)()
    if not isinstance(path, str) or not path:
        raise wrong_value(name, value, "the path of a file")
    return path


def _integer(low: int, high: int) -> OptionReader:
    def read(name: str, value: object) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise wrong_value(name, value, f"a whole number from {low} to {high}")
        return number

    return read


def _seconds(low: float, high: float) -> OptionReader:
    def read(name: str, value: object) -> float:
        try:
            seconds = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            seconds = math.nan
        if isinstance(value, bool) or not low <= seconds <= high:
            raise wrong_value(name, value, f"seconds from {low:g} to {high:g}")
        return seconds

    return read


def _instance(kind: type[_Value], expected: str) -> Callable[[str, object], _Value]:
    def read(name: str, value: object) -> _Value:
        if not isinstance(value, kind):
            raise wrong_value(name, value, expected)
        return value

    return read


def _compression(name: str, value: object) -> tuple[CompressionName, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    names = tuple(value) if isinstance(value, Iterable) else (value,)
    for chosen in names:
        if chosen not in COMPRESSIONS:
            raise wrong_value(name, chosen, f"of {', '.join(COMPRESSIONS)}, the best first")
        # What is not installed is an error here, not when a server is met that has it.
        create_codec(chosen)
    return names


def _reconnect(name: str, value: object) -> ReconnectPolicy:
    if isinstance(value, ReconnectPolicy):
        return value
    return ReconnectPolicy() if read_boolean(name, value) else NoReconnect()


def _store(name: str, value: object) -> CheckpointStore:
    if not all(callable(getattr(value, method, None)) for method in ("load", "save")):
        raise wrong_value(
            name, value, "a store with the methods load() and save(), such as FileCheckpointStore"
        )
    return cast("CheckpointStore", value)


def _hook(name: str, value: object) -> StatusHook:
    if not callable(value):
        raise wrong_value(name, value, "a function of a StreamStatus")
    return value


_READERS: Final[Mapping[str, OptionReader]] = MappingProxyType(
    {
        **SELECTION_READERS,
        "host": read_text,
        "port": _integer(1, 65535),
        "user": read_text,
        "password": _secret,
        "unix_socket": _path,
        "server_id": _integer(1, (1 << 32) - 1),
        "report_host": read_text,
        "report_port": _integer(0, 65535),
        "tls": one_of(*TLS_MODES),
        "tls_ca": _path,
        "tls_cert": _path,
        "tls_key": _path,
        "ssl_context": _instance(ssl.SSLContext, "an ssl.SSLContext"),
        "server_public_key_path": _path,
        "get_server_public_key": read_boolean,
        "enable_cleartext_plugin": read_boolean,
        "compression": _compression,
        "heartbeat": _seconds(0, _MAX_HEARTBEAT),
        "connect_timeout": _seconds(0.001, 86400),
        "reconnect": _reconnect,
        "checkpoints": _store,
        "checkpoint_interval": _seconds(0, 86400),
        "semi_sync": read_boolean,
        "on_status": _hook,
        "status_interval": _seconds(0.01, 86400),
    }
)
_TEXT_OPTIONS: Final = _READERS.keys() - {"events", "columns", "ssl_context", "checkpoints", "on_status"}
