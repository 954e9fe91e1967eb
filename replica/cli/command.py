"""The description of a subcommand: its name, its help, its arguments, and the function that runs it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Final

from protocol.records import record

from .console import Console

#: The exit code of a command that was stopped before it was done, as shells have it for Ctrl-C.
EXIT_INTERRUPTED: Final = 130


@record(frozen=True, slots=True)
class Command:
    """A subcommand. ``run`` returns the exit code; the caller prints the errors that it raises.

    ``help`` is one line. ``epilog`` is printed unchanged at the end of the subcommand's ``--help``.
    """

    name: str
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Console], int]
    epilog: str = ""
