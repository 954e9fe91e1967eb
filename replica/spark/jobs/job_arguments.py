"""The command line arguments that all jobs share (source, password, state, pace), and running a job as a script.

A ``Job`` has its own arguments and a function that runs it; ``mysql-replica spark`` has a table of all jobs. This
module starts no Spark: ``spark_session`` does.
"""

import argparse
import logging
import sys
from argparse import OPTIONAL, SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NoReturn

from protocol.errors import ConfigurationError, ReplicaError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.records import record

from ...config.options import SCHEMES, parse_dsn
from ...config.selection import named, parse_start
from .spark_session import Pace, State, state_of

Note = Callable[[str], None]
_NO_SOURCE: Final[Mapping[str, str]] = MappingProxyType({})

# Argument -> option of the source.
_NAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "password_env": "passwordEnv",
        "password_file": "passwordFile",
        "tables": "includeTables",
        "exclude_tables": "excludeTables",
        "server_id": "serverId",
    }
)


@record(frozen=True, slots=True)
class Job:
    """A job as a subcommand. ``run`` gets the arguments and a function that shows notes; it raises its errors."""

    name: str
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Note], None]
    epilog: str = ""


def add_source_arguments(
    parser: ArgumentParser,
    starts: str = "latest (default), earliest, a time with its zone, a GTID set or an offset",
) -> None:
    """Add SOURCE and the options for it, which ``source_options`` reads. ``starts`` is the help text of --start."""
    add = parser.add_argument
    add(
        "source",
        metavar="SOURCE",
        help="mysql://user@host:port, or binlog files: path, pattern, folder, .index",
    )
    add("--password-env", metavar="NAME", help="the environment variable that holds the password")
    add("--password-file", metavar="FILE", help="the file that holds the password")
    add("--tables", metavar="PATTERNS", help="only these tables, such as shop.*,crm.user")
    add("--exclude-tables", metavar="PATTERNS", help="all tables but these")
    add("--server-id", metavar="N", help="this replica's id, one that no other replica of the source has")
    add(
        "--start",
        metavar="PLACE",
        help=f"where a new job begins: {starts}",
    )
    add(
        "--option",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of the source mysql-binlog, such as tls=required or maxBytesPerTrigger=64m",
    )


class _Target(Action):
    """Takes the target, given by its place or by --target. ``argparse`` has no word for either of two."""

    #: The argument by its place: with --target it may be missing.
    placed: Action | None = None

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if hasattr(namespace, self.dest):
            parser.error(f"{self.dest.upper()}: give it once, by its place or as --{self.dest}")
        if self.placed is not None:
            self.placed.nargs, self.placed.required = OPTIONAL, False
        setattr(namespace, self.dest, values)


def add_target_argument(parser: ArgumentParser, text: str) -> None:
    """Add TARGET, which may be given as --target too. ``text`` is its help."""
    placed = parser.add_argument("target", metavar="TARGET", action=_Target, default=SUPPRESS, help=text)
    named_one = parser.add_argument(
        "--target", metavar="DIR", action=_Target, default=SUPPRESS, help="TARGET as an option"
    )
    assert isinstance(named_one, _Target)
    named_one.placed = placed


def add_run_arguments(parser: ArgumentParser) -> None:
    """Add the options for state, pace and master, which ``state_from`` and ``pace_from`` read."""
    add = parser.add_argument
    add("--once", action="store_true", help="end when all is done that is there now")
    add(
        "--interval",
        metavar="TIME",
        help="begin a micro-batch this often, such as '10 seconds'; default: one after another",
    )
    add("--state", metavar="DIR", help="checkpoint and spool; default: _state in the target")
    add(
        "--spool", metavar="DIR", help="the spool alone: a folder of this machine, or the URI of a shared one"
    )
    add("--master", metavar="URL", help="the master of Spark; default: local[*], or what spark-submit says")


def source_options(options: Namespace) -> dict[str, str]:
    """The options of ``mysql-binlog`` from the arguments. Raises ``ConfigurationError`` for malformed ones.

    A password in SOURCE is an error: everybody on the machine can see command lines.
    """
    found = _place(options.source)
    found |= {name: value for key, name in _NAMED.items() if (value := getattr(options, key)) is not None}
    if options.start is not None:
        found |= _start(options.start)
    for pair in options.options:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"--option: must be NAME=VALUE, not {pair!r}")
        found[name] = value
    return found


def state_from(options: Namespace, target: str, source: Mapping[str, str] = _NO_SOURCE) -> State:
    """The folders in which the job keeps its state."""
    return state_of(target, options.state, options.spool, source=source)


def pace_from(options: Namespace) -> Pace:
    """When the job's micro-batches run."""
    return Pace(options.once, options.interval)


def run_script(job: Job, arguments: list[str] | None = None) -> NoReturn:
    """Run a job as a script. Ends the process with 0, with 1 for errors or with 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        description=job.help, epilog=job.epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    job.add_arguments(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        job.run(options, lambda text: print_note(f"{job.name}: {text}"))
    except ReplicaError as error:
        parser.exit(2 if isinstance(error, ConfigurationError) else 1, f"{job.name}: error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130)
    parser.exit(0)


def print_note(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _place(source: str) -> dict[str, str]:
    if not source.startswith(SCHEMES):
        return {"path": source}
    found = named("SOURCE", parse_dsn, source)
    if "password" in found:
        raise ConfigurationError(
            "SOURCE: leave the password out, as others can see command lines: give --password-env or --password-file"
        )
    if found.keys() - {"host", "port", "user"}:
        raise ConfigurationError(
            "SOURCE: must be mysql://user@host:port, nothing more: give other options by --option NAME=VALUE"
        )
    if "user" not in found:
        raise ConfigurationError("SOURCE: must be mysql://user@host:port; the user is missing")
    return {name: str(value) for name, value in found.items()}


def _start(text: str) -> dict[str, str]:
    place = text.strip()
    if place in ("latest", "earliest") or place.startswith("{"):
        return {"startingOffsets": place}
    found = named("--start", parse_start, place)
    if isinstance(found, datetime):
        return {"startingTimestamp": place}
    if isinstance(found, GtidSet | MariadbGtidSet):
        return {"startingGtidSet": place}
    raise ConfigurationError(
        f"--start: must be latest, earliest, a time, a GTID set or an offset, not {place!r}"
    )
