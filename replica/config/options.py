"""The options of a stream: makes one frozen ``Options`` from a DSN, keyword arguments and an option file.

A wrong value is a ``ConfigurationError`` that names the option. Reads option files, certificates and keys; opens no
connection.
"""

import math
import os
import re
import socket
import ssl
import uuid
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Final, Literal, TypeVar, cast
from urllib.parse import parse_qsl, unquote

from protocol.conversation.commands import RegisterReplica
from protocol.conversation.compressed_packets import COMPRESSIONS, CompressionName, create_codec
from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition
from protocol.records import field, record, replace
from protocol.rows.cells import CellTable

from .checkpoint import CheckpointStore, FileCheckpointStore
from .option_file import DEFAULT_FILE, read_option_file, with_defaults
from .reconnect import NoReconnect, ReconnectPolicy
from .schema_store import FileSchemaStore, SchemaStore
from .selection import (
    SELECTION_READERS,
    OptionReader,
    Selection,
    near_options,
    one_of,
    read_boolean,
    read_path,
    read_table_text,
    read_text,
    whole_number,
    wrong_value,
)
from .status import StatusHook
from .tls import TLS_MODES, VERIFYING, TlsMode, create_ssl_context, read_public_key

_Value = TypeVar("_Value")

#: Whether the chunks of an initial copy lock the rows that they read.
SnapshotLocking = Literal["none", "rows"]

# rpl_replica.h: SLAVE_MAX_HEARTBEAT_PERIOD, in seconds.
_MAX_HEARTBEAT: Final = 4294967
# com_register_slave() of servers before 8.0.17 refuses longer host names (HOSTNAME_LENGTH).
_MAX_REPORT_HOST: Final = 60
_DEFAULT_PORT: Final = 3306
# MYSQL_PWD belongs to no server in particular: a program that logs in to several reads a variable for each.
PASSWORD_VARIABLE: Final = "MYSQL_PWD"
#: How a DSN begins.
SCHEMES: Final = ("mysql://", "mariadb://")
_DSN: Final = re.compile(r"(?:mysql|mariadb)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_HOST: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::([0-9]{1,5}))?")


def _random_server_id() -> int:
    # 0 would make the source end the dump at the end of its log.
    return 1 + int.from_bytes(os.urandom(8), "big") % ((1 << 32) - 1)


def _host_name() -> str:
    return socket.gethostname()[:_MAX_REPORT_HOST]


@record(slots=True, frozen=True, kw_only=True)
class Options(Selection):
    """The whole configuration of one stream. ``replica.connect`` explains each option.

    The source tells replicas apart by ``server_id`` and ``replica_uuid``. Both stay the same as long as the stream
    lives, so that a new connection replaces the old one. ``ssl_context`` is None if TLS is disabled. ``cells`` is a
    renderer's own table of value converters, and no argument of ``replica.connect``; nor is
    ``snapshot_restarts_after_ddl``: DDL of a table begins its copy anew, for a consumer that cannot apply it.
    ``host`` and ``port`` are the first of ``hosts``. ``get_server_public_key`` is None for the default: only from
    this machine. ``warned`` has the warnings that are logged once; the options of each host share it. ``server`` is
    the name of the server that connections have to reach, where behind the address may be several; None: any.
    """

    host: str = "localhost"
    port: int = _DEFAULT_PORT
    hosts: tuple[tuple[str, int], ...] = ()
    user: str = ""
    password: str = field(default="", repr=False)
    option_file: str | None = None
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
    get_server_public_key: bool | None = None
    enable_cleartext_plugin: bool = False
    compression: tuple[CompressionName, ...] = ()
    heartbeat: float = 30.0
    connect_timeout: float = 10.0
    reconnect: ReconnectPolicy = field(default_factory=ReconnectPolicy)
    checkpoints: CheckpointStore | None = None
    checkpoint_interval: float = 1.0
    schemas: SchemaStore | None = None
    semi_sync: bool = False
    on_status: StatusHook | None = None
    status_interval: float = 10.0
    snapshot_connections: int = 1
    snapshot_chunk_rows: int = 10_000
    snapshot_where: Mapping[str, str] = field(default_factory=dict)
    snapshot_locking: SnapshotLocking = "none"
    snapshot_restarts_after_ddl: bool = False
    server: str | None = None
    cells: CellTable | None = field(default=None, repr=False)
    warned: set[str] = field(default_factory=set, repr=False, compare=False)

    @property
    def address(self) -> str:
        """The source's address for messages: the socket's path, or all hosts with their ports."""
        if self.unix_socket is not None:
            return self.unix_socket
        return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    def each_host(self) -> list["Options"]:
        """The same options once for each host, in the order in which hosts are tried."""
        if len(self.hosts) < 2:
            return [self]
        return [replace(self, host=host, port=port, hosts=((host, port),)) for host, port in self.hosts]

    def check_one_host(self, reason: str) -> None:
        """Raise ``ConfigurationError`` if there are several hosts, for callers that work with one."""
        if len(self.hosts) > 1:
            raise ConfigurationError(f"host: give one host, not {self.address}: {reason}")

    @classmethod
    def build(cls, dsn: str | None, given: Mapping[str, object]) -> "Options":
        """Options from keyword arguments, then the DSN, then the option file: the first that has a value wins.

        None means not given. Without a password in any of them, the environment variable ``MYSQL_PWD`` is used.
        Raises ``ConfigurationError``, naming the option and never showing the password.
        """
        values = {} if dsn is None else parse_dsn(dsn)
        values |= {name: value for name, value in given.items() if value is not None}
        path = _option_file("option_file", values.pop("option_file", False))
        read = {name: _READERS[name](name, value) for name, value in values.items()}
        if path is not None:
            read = with_defaults(read, _read_file(path)) | {"option_file": path}
        if "password" not in read and PASSWORD_VARIABLE in os.environ:
            read["password"] = os.environ[PASSWORD_VARIABLE]
        _choose_hosts(read)
        _choose_tls(read)
        if "server_public_key_path" in read:
            read["server_public_key"] = read_public_key(str(read["server_public_key_path"]))
        options = cls(**read)  # type: ignore[arg-type]
        _check_stores(options)
        if not options.user:
            raise ConfigurationError("user: no account is given: set user= or write mysql://user@host")
        if options.ssl_context is None and options.tls != "disabled":
            context = create_ssl_context(options.tls, options.tls_ca, options.tls_cert, options.tls_key)
            object.__setattr__(options, "ssl_context", context)
        return options


def _check_stores(options: "Options") -> None:
    """Refuse one file for both stores: each would write over what the other needs."""
    checkpoints, schemas = options.checkpoints, options.schemas
    if not (isinstance(checkpoints, FileCheckpointStore) and isinstance(schemas, FileSchemaStore)):
        return
    if checkpoints.path == schemas.path:
        raise ConfigurationError(f"schemas: {schemas.path} is the file of checkpoints=: give another one")


def _read_file(path: str) -> dict[str, object]:
    found = read_option_file(path)
    try:
        return {name: _READERS[name](name, value) for name, value in found.items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"option_file: {path}: {error}") from None


def _choose_hosts(read: dict[str, object]) -> None:
    """Give each host its port, and refuse options that are ambiguous with several hosts."""
    port = cast("int", read.get("port", _DEFAULT_PORT))
    named = cast("tuple[tuple[str, int | None], ...]", read.get("host", (("localhost", None),)))
    hosts = tuple((host, port if own is None else own) for host, own in named)
    read["hosts"] = hosts
    read["host"], read["port"] = hosts[0]
    if len(hosts) < 2:
        return
    if "unix_socket" in read:
        raise ConfigurationError("unix_socket and several hosts exclude each other: give one of the two")
    for name in ("start", "stop"):
        if isinstance(read.get(name), BinlogPosition):
            raise ConfigurationError(
                f"{name}: a position is valid in one server's log only, and host names several servers: give a GTID "
                "set, a checkpoint or a time, or one host"
            )


def _choose_tls(read: dict[str, object]) -> None:
    """Derive the ``tls`` mode from the other options, and refuse options that would have no effect."""
    if "ssl_context" in read:
        for name in ("tls", "tls_ca", "tls_cert", "tls_key"):
            if name in read:
                raise ConfigurationError(f"{name} and ssl_context exclude each other: set it in the context")
        read["tls"] = "required"
    elif "tls" not in read and read.get("unix_socket") is not None:
        # Data on a Unix socket never leaves the machine: no TLS by default, as in the servers' own clients.
        read["tls"] = "disabled"
    elif "tls_ca" in read and read.setdefault("tls", "verify-ca") not in VERIFYING:
        raise ConfigurationError(
            "tls_ca needs tls='verify-ca' or 'verify-identity': other modes check no authority"
        )
    if "tls_key" in read and "tls_cert" not in read:
        raise ConfigurationError("tls_key needs tls_cert, the certificate that the key belongs to")


def parse_dsn(dsn: str) -> dict[str, object]:
    """Parse ``mysql://user:password@host:port/?option=value`` into option names and their texts.

    User, password and hosts are percent-decoded; an IPv6 address stands in brackets. Several hosts are separated by
    commas, each with or without a port: ``db1:3307,db2,[::1]``. Options after the ``?`` are named like
    ``replica.connect``'s arguments. Raises ``ConfigurationError``.
    """
    parts = _DSN.fullmatch(dsn) if isinstance(dsn, str) else None
    if parts is None:
        raise ConfigurationError("dsn: it does not start with mysql:// (or mariadb://)")
    authority, path, query, fragment = (part or "" for part in parts.groups())
    userinfo, at, hosts = authority.rpartition("@")
    # A missing host or a port that is no number means that the password holds characters that need encoding.
    if (not at and "@" in f"{path}{query}{fragment}") or not (hosts == "" or _are_hosts(hosts)):
        raise ConfigurationError(
            "dsn: host or port cannot be read: the port must be a number, and characters such as / # ? @ : in a "
            "password must be percent-encoded"
        )
    if fragment:
        raise ConfigurationError("dsn: a # must be percent-encoded (%23)")
    if path not in ("", "/"):
        raise ConfigurationError(
            "dsn: a database after the host is not supported, a replica reads the whole log: use tables='shop.*'"
        )
    user, colon, password = userinfo.partition(":")
    found = {"user": user, "host": hosts, "port": None}
    single = _HOST.fullmatch(hosts)
    if single is not None:
        found |= {"host": single[1] or single[2], "port": single[3]}
    values: dict[str, object] = {name: _unquoted(name, text) for name, text in found.items() if text}
    if colon:
        values["password"] = _unquoted("password", password)
    pairs = _query(query)
    if pairs is None:
        raise ConfigurationError("dsn: after the ? write option=value pairs, joined by &")
    for name, text in pairs:
        if name not in _READERS:
            raise ConfigurationError(f"dsn: there is no option {name!r}{near_options(name, _READERS)}")
        if name in values:
            raise ConfigurationError(f"dsn: {name} is given twice")
        if name not in _TEXT_OPTIONS:
            raise ConfigurationError(f"dsn: {name} cannot be given in a DSN, only as an argument")
        values[name] = text
    return values


def _are_hosts(text: str) -> bool:
    return all(_HOST.fullmatch(part) for part in text.split(","))


# The exceptions caught here quote part of the DSN, possibly the password. They must not even become the context of
# another error, so the callers raise it.


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
        raise ConfigurationError(f"dsn: {name} is not percent-encoded UTF-8")
    return unquoted


# One reader for each option: takes the text of a DSN or an argument, returns the value in Options.


def _hosts(name: str, value: object) -> tuple[tuple[str, int | None], ...]:
    """Hosts, each with its own port or None."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Iterable):
        raise wrong_value(name, value, "a host, or several with commas between")
    hosts = tuple(_one_host(name, read_text(name, part).strip()) for part in value)
    if not hosts:
        raise wrong_value(name, value, "a host, or several with commas between")
    return hosts


def _one_host(name: str, text: str) -> tuple[str, int | None]:
    if "@" in text:
        # It holds the password, which no message shows.
        raise ConfigurationError(
            f"{name}: a host alone: user and password are options of their own, and a whole DSN is the first argument"
        )
    if text.count(":") > 1 and "[" not in text:
        return text, None  # an IPv6 address by itself
    found = _HOST.fullmatch(text)
    if found is None:
        raise wrong_value(name, text, "host, host:port, [IPv6] or [IPv6]:port")
    address, host, port = found.groups()
    return address or host, None if port is None else _port("port", port)


def _option_file(name: str, value: object) -> str | None:
    """The path of the option file; None if no file is to be read."""
    if isinstance(value, bool) or value in ("true", "false"):
        return os.path.expanduser(DEFAULT_FILE) if value in (True, "true") else None
    return os.path.expanduser(read_path(name, value))


def _secret(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}: a text, not {type(value).__name__}")
    return value


def _report_host(name: str, value: object) -> str:
    text = read_text(name, value)
    try:
        RegisterReplica(0, text).encode()
    except ConfigurationError:
        raise wrong_value(name, text, "a name of at most 255 bytes") from None
    return text


_port: Final = whole_number(1, 65535)


def seconds_between(low: float, high: float) -> Callable[[str, object], float]:
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
        # A missing extra is an error now, not when the first server supports it.
        create_codec(chosen)
    return names


def _reconnect(name: str, value: object) -> ReconnectPolicy:
    if isinstance(value, ReconnectPolicy):
        return value
    try:
        return ReconnectPolicy() if read_boolean(name, value) else NoReconnect()
    except ConfigurationError:
        expected = "true, false or a policy such as ReconnectPolicy(attempts=5)"
        raise wrong_value(name, value, expected) from None


def _store(name: str, value: object) -> CheckpointStore:
    is_store = all(callable(getattr(value, method, None)) for method in ("load", "save"))
    if isinstance(value, type | FileSchemaStore) or not is_store:
        raise wrong_value(
            name, value, "a store with the methods load() and save(), such as FileCheckpointStore"
        )
    return cast("CheckpointStore", value)


def _start(name: str, value: object) -> object:
    if value == "snapshot":
        return value
    try:
        return SELECTION_READERS["start"](name, value)
    except ConfigurationError as error:
        if isinstance(value, str) and value.strip().isalpha():
            raise ConfigurationError(f"{error}; snapshot copies the tables first") from None
        raise


def _where(name: str, value: object) -> Mapping[str, str]:
    """Conditions in SQL by table."""
    if not isinstance(value, Mapping):
        raise wrong_value(name, value, "a mapping such as {'shop.orders': \"placed > '2026-01-01'\"}")
    conditions = {
        read_table_text(name, table): read_text(f"{name}[{table!r}]", condition)
        for table, condition in value.items()
    }
    return MappingProxyType(conditions)


def _schema_store(name: str, value: object) -> SchemaStore:
    if isinstance(value, type) or not all(
        callable(getattr(value, method, None)) for method in ("load", "save", "append")
    ):
        raise wrong_value(
            name, value, "a store with the methods load(), save() and append(), such as FileSchemaStore"
        )
    return cast("SchemaStore", value)


def _hook(name: str, value: object) -> StatusHook:
    if not callable(value):
        raise wrong_value(name, value, "a function of a StreamStatus")
    if iscoroutinefunction(value) or iscoroutinefunction(type(value).__call__):
        raise wrong_value(name, value, "a plain function: nothing awaits a coroutine function")
    return value


_READERS: Final[Mapping[str, OptionReader]] = MappingProxyType(
    {
        **SELECTION_READERS,
        "start": _start,
        "host": _hosts,
        "port": _port,
        "user": read_text,
        "password": _secret,
        "option_file": _option_file,
        "unix_socket": read_path,
        "server_id": whole_number(1, (1 << 32) - 1),
        "report_host": _report_host,
        "report_port": whole_number(0, 65535),
        "tls": one_of(*TLS_MODES),
        "tls_ca": read_path,
        "tls_cert": read_path,
        "tls_key": read_path,
        "ssl_context": _instance(ssl.SSLContext, "an ssl.SSLContext"),
        "server_public_key_path": read_path,
        "get_server_public_key": read_boolean,
        "enable_cleartext_plugin": read_boolean,
        "compression": _compression,
        "heartbeat": seconds_between(0, _MAX_HEARTBEAT),
        "connect_timeout": seconds_between(0.001, 86400),
        "reconnect": _reconnect,
        "checkpoints": _store,
        "checkpoint_interval": seconds_between(0, 86400),
        "schemas": _schema_store,
        "semi_sync": read_boolean,
        "on_status": _hook,
        "status_interval": seconds_between(0.01, 86400),
        "snapshot_connections": whole_number(1, 64),
        "snapshot_chunk_rows": whole_number(1, 1_000_000),
        "snapshot_where": _where,
        "snapshot_locking": one_of("none", "rows"),
    }
)
_TEXT_OPTIONS: Final = _READERS.keys() - {
    "events",
    "columns",
    "ssl_context",
    "checkpoints",
    "on_status",
    "snapshot_where",
    "schemas",
}
