"""Arguments that several subcommands share, and functions that read their values."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Final

from protocol.errors import ConfigurationError

from ..config.selection import Start, parse_start

DSN_HELP: Final = "the source: mysql://user:password@host:port/?option=value"
PLACES: Final = (
    "now, earliest, FILE:POS, a GTID set (the transactions that you already have), or a time with its zone "
    "(2026-01-31T12:00:00Z)"
)
_LAST_PORT: Final = 65535
SERVER_ID_HELP: Final = (
    "server_id of this replica; must differ from those of the source and its other replicas"
)


def add_table_arguments(parser: ArgumentParser) -> None:
    """Add ``--tables`` and ``--exclude-tables``, which may be repeated; ``patterns`` joins their values."""
    add = parser.add_argument
    add(
        "--tables",
        metavar="PATTERNS",
        action="append",
        help="only row changes of these tables, such as shop.*,crm.user",
    )
    add("--exclude-tables", metavar="PATTERNS", action="append", help="no row changes of these tables")


def add_changes_argument(parser: ArgumentParser) -> None:
    """Add ``--changes``."""
    parser.add_argument(
        "--changes",
        action="store_true",
        help="only row changes: no statements and no other events",
    )


def add_metrics_argument(parser: ArgumentParser) -> None:
    """Add --metrics."""
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve /metrics (OpenMetrics) and /healthz over HTTP at this address, without a login: use 127.0.0.1, "
        "or a network of your own",
    )


def add_key_argument(parser: ArgumentParser) -> None:
    """Add ``--get-server-public-key``, which the MySQL clients have, too; the value is None if it was not given."""
    parser.add_argument(
        "--get-server-public-key",
        action="store_true",
        default=None,
        help="without TLS: ask the source for the RSA key that encrypts the password; a machine in the middle could "
        "then read it (default: only on this machine)",
    )


def patterns(given: Sequence[str] | None) -> str | None:
    """The values of a repeated option, joined by commas; None if it was not given."""
    return ",".join(given) if given else None


def read_place(option: str, text: str) -> Start:
    """Read a position in a source's log. Raises ``ConfigurationError``, which names ``option``."""
    try:
        return parse_start(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error} -- a place is {PLACES}") from error


def read_address(option: str, text: str) -> tuple[str, int]:
    """Read HOST:PORT. Raises ``ConfigurationError``, which names ``option``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > _LAST_PORT:
        raise ConfigurationError(f"{option}: {text!r} is not HOST:PORT, such as 127.0.0.1:3307")
    return host.removeprefix("[").removesuffix("]"), int(port)
