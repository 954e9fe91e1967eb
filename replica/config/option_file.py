"""Reads an option file of MySQL or MariaDB, such as ``~/.my.cnf``: the groups ``[client]`` and ``[mysql-replica]``.

The syntax is that of the servers' own clients (``mysys/my_default.cc``): comments, quotes, escapes, ``!include`` and
``!includedir``. A world-writable file is ignored. The result maps option names of ``replica.connect`` to text.
Options of other programs are passed over; values are not checked here. No error message quotes a line of the file.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from protocol.errors import ConfigurationError

from .tls import VERIFYING

_LOGGER: Final = logging.getLogger(__name__)

#: The user's own option file. The servers' clients always read it; this program only on request.
DEFAULT_FILE: Final = "~/.my.cnf"
_GROUPS: Final = frozenset({"client", "mysql-replica"})
_MOST_INCLUDES: Final = 10
_ESCAPES: Final = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", '"': '"', "'": "'", "\\": "\\"}
)
# The ASCII white space of my_isspace().
_SPACES: Final = " \t\n\v\f\r"

# Options with a value: the clients' name -> the name in replica.connect.
_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "host": "host",
        "port": "port",
        "user": "user",
        "password": "password",
        "socket": "unix_socket",
        "ssl-ca": "tls_ca",
        "ssl-cert": "tls_cert",
        "ssl-key": "tls_key",
        "connect-timeout": "connect_timeout",
        "compression-algorithms": "compression",
        "server-public-key-path": "server_public_key_path",
    }
)
# Switches: the clients' name -> the name in replica.connect, its value when on, its value when off.
_SWITCHES: Final[Mapping[str, tuple[str, str, str | None]]] = MappingProxyType(
    {
        "compress": ("compression", "zlib,uncompressed", "uncompressed"),
        "ssl": ("tls", "required", "disabled"),
        "ssl-verify-server-cert": ("tls", "verify-identity", None),
        "enable-cleartext-plugin": ("enable_cleartext_plugin", "true", "false"),
        "get-server-public-key": ("get_server_public_key", "true", "false"),
    }
)
_SSL_MODE: Final = "ssl-mode"
_PROTOCOL: Final = "protocol"
# my_getopt.cc: get_bool_argument.
_OFF: Final = frozenset({"0", "false", "off", "no"})
_NEGATIONS: Final = ("skip-", "disable-")


def read_option_file(path: str) -> dict[str, str]:
    """Option names of ``replica.connect`` and their texts; the last occurrence wins. Empty if the file is ignored.

    Raises ``ConfigurationError``, naming the file and the line.
    """
    path = os.path.expanduser(path)
    found: dict[str, str] = {}
    protocol = ""
    for where, name, value in _options(path, 0):
        if name == _PROTOCOL:
            protocol = (value or "").lower()
            continue
        found |= _translated(where, name, value)
    has_host = found.get("host", "localhost").lower() != "localhost"
    if has_host or protocol == "tcp":
        # As in the servers' clients: a socket is for the local host, unless the file demands TCP.
        found.pop("unix_socket", None)
    return found


def with_defaults(given: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    """The given options, plus the options found in a file that do not contradict them."""
    rest = {name: value for name, value in found.items() if name not in given}
    if given.keys() & {"host", "port"}:
        rest.pop("unix_socket", None)
    if "unix_socket" in given:
        rest.pop("host", None)
    if given.keys() & {"tls_cert", "tls_key"}:
        _drop(rest, "tls_cert", "tls_key")
    if "tls_ca" in given and rest.get("tls") not in VERIFYING:
        _drop(rest, "tls")
    if "ssl_context" in given:
        _drop(rest, "tls", "tls_ca", "tls_cert", "tls_key")
    tls = {**rest, **given}.get("tls")
    if tls is not None and tls not in VERIFYING:
        # The servers' clients also ignore the file's ssl-ca in the modes that do not verify.
        _drop(rest, "tls_ca")
    return {**rest, **given}


def _drop(options: dict[str, object], *names: str) -> None:
    for name in names:
        options.pop(name, None)


def _translated(where: str, name: str, value: str | None) -> dict[str, str]:
    """One option under its name in ``replica.connect``; empty for an option that ``connect`` does not have."""
    if name == _SSL_MODE:
        return {"tls": _needed(where, name, value).lower().replace("_", "-")}
    if name in _VALUES:
        return {_VALUES[name]: _needed(where, name, value)}
    is_on = value is None or value.lower() not in _OFF
    for negation in _NEGATIONS:
        if name.startswith(negation):
            name, is_on = name.removeprefix(negation), not is_on
    if name not in _SWITCHES:
        return {}
    ours, on, off = _SWITCHES[name]
    text = on if is_on else off
    return {} if text is None else {ours: text}


def _needed(where: str, name: str, value: str | None) -> str:
    if value is None:
        raise ConfigurationError(f"option_file: {where}: {name} has no value: write {name}=...")
    return value


# The syntax.


def _options(path: str, depth: int) -> Iterator[tuple[str, str, str | None]]:
    """Place (file and line), name and value of each option in the groups read; names are written with ``-``."""
    group: str | None = None
    for number, line in enumerate(_lines(path, depth), 1):
        where = f"{path}, line {number}"
        text = line.strip(_SPACES)
        if not text or text[0] in "#;":
            continue
        if text[0] == "!":
            yield from _included(text[1:].lstrip(_SPACES), where, depth)
        elif text[0] == "[":
            group, bracket, _ = text[1:].partition("]")
            group = group.rstrip(_SPACES)
            if not bracket:
                raise ConfigurationError(
                    f"option_file: {where}: the group's closing ] is missing: write [name]"
                )
        elif group is None:
            raise ConfigurationError(
                f"option_file: {where}: an option stands before the first group: put [client] above it"
            )
        elif group in _GROUPS:
            name, value = _option(text)
            yield where, name.replace("_", "-").removeprefix("loose-"), value


def _lines(path: str, depth: int) -> list[str]:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & stat.S_IWOTH and stat.S_ISREG(mode):
                _LOGGER.warning("option_file: %s is ignored, because it is world-writable -- chmod o-w", path)
                return []
            content = file.read()
    except ValueError as error:
        raise ConfigurationError(f"option_file: {path!r} cannot be a path: {error}") from error
    except OSError as error:
        if depth and isinstance(error, FileNotFoundError):
            _LOGGER.warning("option_file: the included file %s does not exist", path)
            return []
        raise ConfigurationError(f"option_file: {path}: {error.strerror or error}") from error
    text = _decoded(content)
    if text is None:
        raise ConfigurationError(f"option_file: {path}: the file is not UTF-8")
    return text.split("\n")


def _decoded(content: bytes) -> str | None:
    # UnicodeDecodeError holds the content, passwords included: it must not become the context of another error.
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _included(directive: str, where: str, depth: int) -> Iterator[tuple[str, str, str | None]]:
    word, _, argument = directive.replace("\t", " ").partition(" ")
    argument = argument.strip(_SPACES)
    if word not in ("include", "includedir"):
        return
    if not argument:
        raise ConfigurationError(f"option_file: {where}: !{word} needs a path")
    if depth >= _MOST_INCLUDES:
        _LOGGER.warning(
            "option_file: %s: includes nest at most %d deep; this is ignored", where, _MOST_INCLUDES
        )
        return
    path = os.path.expanduser(argument)
    if word == "include":
        yield from _options(path, depth + 1)
        return
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(".cnf"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"option_file: {where}: {path}: {reason}") from error
    for name in names:
        yield from _options(os.path.join(path, name), depth + 1)


def _option(text: str) -> tuple[str, str | None]:
    name, equals, value = _without_comment(text).partition("=")
    return name.rstrip(_SPACES), _value(value.strip(_SPACES)) if equals else None


def _without_comment(text: str) -> str:
    """The text before the first ``#`` outside quotes."""
    quote, is_escaped = "", False
    for index, character in enumerate(text):
        if character in "'\"" and not is_escaped:
            if not quote:
                quote = character
            elif quote == character:
                quote = ""
        if not quote and character == "#":
            return text[:index]
        is_escaped = bool(quote) and character == "\\" and not is_escaped
    return text


def _value(text: str) -> str:
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text, flags=re.DOTALL)
