"""What a subcommand of the command line is: its name, its arguments, and the function that runs it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from .console import Console


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand. ``run`` returns the exit code; errors of the library are the caller's to print.

    ``help`` is one line; ``epilog`` stands at the end of the subcommand's own help, as it is.
    """

    name: str
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Console], int]
    epilog: str = ""
