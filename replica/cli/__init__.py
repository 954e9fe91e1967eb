"""The command line: ``mysql-replica``, or ``python -m replica``.

``COMMANDS`` lists the subcommands. Exit codes: 0 success, 1 the log, the stream or the output failed, 2 invalid
arguments. An error is one line that names the remedy; ``--debug`` adds the traceback.
"""

import argparse
import errno
import logging
import re
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn

from protocol.errors import ConfigurationError, ReplicaError

from . import completion, copy_tables, decode, demo, doctor, relay, serve, spark, stats, tail
from .command import EXIT_INTERRUPTED, Command
from .console import PROGRAM, Console
from .option_names import named_as_given, note_flags

COMMANDS: Final[tuple[Command, ...]] = (
    copy_tables.COMMAND,
    demo.COMMAND,
    decode.COMMAND,
    doctor.COMMAND,
    relay.COMMAND,
    serve.COMMAND,
    spark.COMMAND,
    stats.COMMAND,
    tail.COMMAND,
    completion.COMMAND,
)

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Raises ``SystemExit`` for ``--help`` and unknown arguments."""
    options = argparse.Namespace(debug=False)
    console = Console.standard()
    handler = _Notes(console, options)
    logging.getLogger("replica").addHandler(handler)
    try:
        make_parser().parse_args(arguments, options)
        command: Command = options.command
        code = command.run(options, console)
        console.output.flush()
        return code
    except BrokenPipeError:
        console.close_output()
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if options.debug:
            console.lines(_without_password(traceback.format_exc()))
        text = error_text(error, getattr(options, "output", None) or "standard output")
        console.note(named_as_given(text, options))
        _flush_or_close(console)
        return EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILURE
    finally:
        logging.getLogger("replica").removeHandler(handler)
        console.close_errors()


def _flush_or_close(console: Console) -> None:
    """Write what is left of the output. Python 3.14 ends with 120 and a traceback if that fails at its exit."""
    try:
        console.output.flush()
    except OSError:
        console.close_output()


def make_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = _Parser(
        prog=PROGRAM,
        description="Read the binary logs of MySQL and MariaDB, from files or from a running server as a replica.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.set_defaults(parser=parser)
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
        note_flags(subparser)
    return parser


class _Parser(argparse.ArgumentParser):
    """Prints its help as all output is printed: argparse passes over a full disk. Its errors show no password."""

    def print_help(self, file: object = None) -> None:
        _print(self.format_help())

    def error(self, message: str) -> NoReturn:
        super().error(_without_password(message))


def _print(text: str) -> None:
    output = Console.standard().result()
    output.write(text.encode("utf-8", "backslashreplace"))
    output.flush()


class _Version(argparse.Action):
    """Prints the versions of the package and of Python. The package's metadata is read only here."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        import platform
        from importlib import metadata

        try:
            version = metadata.version(PROGRAM)
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        _print(f"{PROGRAM} {version}, Python {platform.python_version()}\n")
        parser.exit(0)


def error_text(error: Exception, output: str = "standard output") -> str:
    """The message for an error, in one line; ``output`` is where the result goes."""
    if isinstance(error, ReplicaError):
        return f"error: {_without_password(str(error))}"
    if isinstance(error, OSError):
        name = error.filename
        if name is None and error.errno in _FULL_DISK:
            # Errors of all other files that commands write have the file's name.
            name = output
        return f"error: {name + ': ' if isinstance(name, str) else ''}{error.strerror or error}"
    return f"error: {type(error).__name__}: {error} (a defect of {PROGRAM}; --debug prints the traceback)"


def _without_password(text: str) -> str:
    """A message that may quote an argument: a DSN, in the place of another argument."""
    return re.sub(r"(?<=mysql:)//.*@|(?<=mariadb:)//.*@|//\S*@", "//...@", text)


class _Notes(logging.Handler):
    """Prints the library's warnings, such as the one about damaged events that were skipped."""

    def __init__(self, console: Console, options: argparse.Namespace) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._options = options

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        self._console.note(named_as_given(text, self._options))
