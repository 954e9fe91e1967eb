"""The command line: ``mysql-replica``, also ``python -m replica``.

Subcommands stand in ``COMMANDS``. Exit codes: 0 all is well, 1 the log, the stream or the output fails, 2 the
arguments cannot be used. An error is one line that names the remedy; ``--debug`` adds the traceback.
"""

import argparse
import logging
import traceback
from collections.abc import Sequence
from typing import Final

from protocol.errors import ConfigurationError, ReplicaError

from . import decode, demo, doctor, relay, serve, spark, stats, tail
from .command import Command
from .console import PROGRAM, Console

COMMANDS: Final[tuple[Command, ...]] = (
    demo.COMMAND,
    decode.COMMAND,
    doctor.COMMAND,
    relay.COMMAND,
    serve.COMMAND,
    spark.COMMAND,
    stats.COMMAND,
    tail.COMMAND,
)

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
_EXIT_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``SystemExit`` for ``--help`` and arguments it cannot read."""
    options = make_parser().parse_args(arguments)
    command: Command = options.command
    console = Console.standard()
    handler = _Notes(console)
    logging.getLogger("replica").addHandler(handler)
    try:
        code = command.run(options, console)
        console.output.flush()
        return code
    except BrokenPipeError:
        console.close_output()
        return 0
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except Exception as error:
        if options.debug:
            console.errors.write(traceback.format_exc())
        console.note(error_text(error))
        return EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILURE
    finally:
        logging.getLogger("replica").removeHandler(handler)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Reads the binary logs of MySQL and MariaDB: files, and live as a replica."
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
        subparser.add_argument("--debug", action="store_true", help="print the traceback of an error")
        subparser.set_defaults(command=command)
    return parser


def error_text(error: Exception) -> str:
    """What to tell of an error in one line."""
    if isinstance(error, ReplicaError):
        return f"error: {error}"
    if isinstance(error, OSError):
        return f"error: {error.filename + ': ' if isinstance(error.filename, str) else ''}{error.strerror or error}"
    return f"error: {type(error).__name__}: {error} (this is a defect of {PROGRAM}; --debug shows where)"


class _Notes(logging.Handler):
    """Prints what the library logs: warnings, such as of damage that was passed over."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.note(f"{record.levelname.lower()}: {record.getMessage()}")
