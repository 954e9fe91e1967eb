"""Arguments that several subcommands have, and how their texts are read."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Final

from protocol.errors import ConfigurationError

from ..selection import Start, parse_start

DSN_HELP: Final = "the source: mysql://user:password@host:port/?option=value"


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
        return parse_start(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from error
