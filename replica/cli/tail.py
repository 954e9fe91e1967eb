"""``mysql-replica tail``: a source's changes while they are made, to be read on a terminal or by another program.

What it stands on is imported when it runs: other subcommands shall not wait for asyncio and TLS.
"""

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Final

from protocol.binlog.events import RowsEvent, TableMapEvent
from protocol.errors import ConfigurationError
from protocol.position import Checkpoint

from ..render.live_changes import ChangeRenderer
from ..render.sql_lines import SqlRenderer
from .arguments import DSN_HELP, PLACES, add_table_arguments, patterns, read_place
from .command import Command
from .console import Console
from .formats import DATA_FORMATS, Renderer, sql_renderer
from .paint import Paint

if TYPE_CHECKING:
    from ..config.checkpoint import FileCheckpointStore
    from ..stream.binlog_stream import BinlogStream

# Behind these more is to come at once; behind all others whoever reads shall see what there is.
_HELD: Final = (RowsEvent, TableMapEvent)


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help=DSN_HELP)
    add_table_arguments(parser)
    add(
        "--from",
        dest="start",
        metavar="PLACE",
        help=f"{PLACES}; default: now",
    )
    add("--stop", metavar="PLACE", help="end there instead of waiting for more: now, or a place as above")
    add("-f", "--format", choices=_FORMATS, help="default: text on a terminal, json elsewhere")
    add("--checkpoint", metavar="FILE", help="keep the resume point there; what it holds wins over --from")
    add("--server-id", metavar="N", help="this replica's id, one that no other replica of the source has")
    add(
        "--disable-log-bin",
        action="store_true",
        help="with SQL: keep the replay out of the target's binary log",
    )


_EPILOG: Final = """\
Text is for people: a line per transaction (time in UTC, GTID, position), below it each change; what is too long for
the terminal is cut. Colours need the extra [cli] (pip install 'mysql-replica[cli]'); NO_COLOR turns them off.
json is one object per line, as decode writes it: of row changes ("op"), and of all other events ("event").

Ctrl-C and SIGTERM end it in order: the exit code is 0, and the last line on standard error says where to go on.
A transaction that was cut off comes again from its beginning."""


def _run(options: Namespace, console: Console) -> int:
    from .service import follow_until_stopped

    name = options.format or ("text" if console.output.isatty() else "json")
    if options.disable_log_bin and name != "sql":
        raise ConfigurationError("--disable-log-bin is for SQL: add --format sql")
    renderer = _FORMATS[name](console.output, options)
    stream = open_stream(options, console, renderer)
    if options.checkpoint and options.start and os.path.exists(options.checkpoint):
        console.note(f"going on from {options.checkpoint}, which wins over --from")
    try:
        follow_until_stopped(stream, lambda: follow(stream, renderer, console))
    except BrokenPipeError:
        # Whoever has read the output has seen enough.
        raise
    except BaseException:
        if stream.status.events:
            _tell_resume_point(stream.checkpoint, options, console)
        raise
    _tell_resume_point(stream.checkpoint, options, console)
    return 0


def open_stream(options: Namespace, console: Console, renderer: Renderer) -> "BinlogStream":
    """The stream that the arguments ask for, with values as the renderer wants them; not connected yet."""
    from dataclasses import replace

    from ..config.options import Options
    from ..stream.binlog_stream import BinlogStream

    given = {
        "start": None if options.start is None else read_place("--from", options.start),
        "stop": None if options.stop is None else read_place("--stop", options.stop),
        "tables": patterns(options.tables),
        "exclude_tables": patterns(options.exclude_tables),
        "server_id": options.server_id,
        "checkpoints": _store(options.checkpoint, console) if options.checkpoint else None,
    }
    wanted = Options.build(options.dsn, given)
    return BinlogStream(replace(wanted, cells=getattr(renderer, "cells", None)))


def _store(path: str, console: Console) -> "FileCheckpointStore":
    from ..config.checkpoint import FileCheckpointStore

    class Store(FileCheckpointStore):
        """A checkpoint says that what lies before it has been written: so it is, first."""

        def save(self, checkpoint: Checkpoint) -> None:
            console.output.flush()
            super().save(checkpoint)

    return Store(path)


async def follow(stream: "BinlogStream", renderer: Renderer, console: Console) -> None:
    """Write what comes, until the stream ends."""
    async with stream:
        console.note(f"{stream.status.address} ({stream.server_version}), Ctrl-C ends")
        if isinstance(renderer, SqlRenderer) and stream.server_version is not None:
            renderer.follow(stream.server_version)
        flush = console.output.flush
        async for event in stream:
            renderer.render(b"", event.position, event)
            if not isinstance(event, _HELD):
                flush()
        renderer.finish()
        flush()


def _tell_resume_point(checkpoint: Checkpoint | None, options: Namespace, console: Console) -> None:
    if checkpoint is None:
        return
    if console.errors.isatty():
        # The terminal has put a ^C there.
        console.errors.write("\r")
    place = checkpoint.gtid_set or f"{checkpoint.file}:{checkpoint.position}"
    console.note(f"resume with --from {shlex.quote(place)}")
    if options.checkpoint:
        console.note(f"or with the same --checkpoint {shlex.quote(options.checkpoint)}")


def _text(output: BinaryIO, options: Namespace) -> Renderer:
    paint = Paint(output)
    return ChangeRenderer(paint.write, paint.width)


_FORMATS: Final[Mapping[str, Callable[[BinaryIO, Namespace], Renderer]]] = MappingProxyType(
    {
        "text": _text,
        "json": lambda output, options: DATA_FORMATS["json"](output),
        "yaml": lambda output, options: DATA_FORMATS["yaml"](output),
        "sql": sql_renderer,
    }
)

COMMAND: Final = Command("tail", "Follow a source's changes as they are made", _add_arguments, _run, _EPILOG)
