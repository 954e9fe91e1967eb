"""Arguments that several subcommands have, and how their texts are read."""

from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from protocol.errors import ConfigurationError

from ..config.selection import Start, parse_start

DSN_HELP: Final = "the source: mysql://user:password@host:port/?option=value"
PLACES: Final = (
    "now, earliest, FILE:POS, a GTID set (what you already have), or a time with zone (2026-01-31T12:00:00Z)"
)


def add_table_arguments(parser: ArgumentParser) -> None:
    """``--tables`` and ``--exclude-tables``, each as often as one likes; ``patterns`` reads them."""
    add = parser.add_argument
    add(
        "--tables",
        metavar="PATTERNS",
        action="append",
        help="row changes of these only, such as shop.*,crm.user",
    )
    add("--exclude-tables", metavar="PATTERNS", action="append", help="row changes of all but these")


def patterns(given: Sequence[str] | None) -> str | None:
    """All the patterns of an option that may be given several times."""
    return ",".join(given) if given else None


def read_place(option: str, text: str) -> Start:
    """A place in a source's log. Raises ``ConfigurationError``, which names the command line's option."""
    try:
        place = parse_start(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error} -- a place is {PLACES}") from error
    if isinstance(place, datetime) and place.utcoffset() is None:
        raise ConfigurationError(f"{option}: the time {text!r} has no zone: put a Z behind it for UTC")
    return place
