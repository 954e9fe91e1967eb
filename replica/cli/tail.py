"""``mysql-replica tail``: prints a source's changes as they are made, for a terminal or for another program.

The stream is imported when it runs, so that other subcommands do not load asyncio and TLS.
"""

import os
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Final

from protocol.binlog.events import Event, RowsEvent, TableMapEvent
from protocol.errors import ConfigurationError
from protocol.position import Checkpoint

from ..render.sql_lines import SqlRenderer
from .arguments import (
    DSN_HELP,
    PLACES,
    SERVER_ID_HELP,
    add_changes_argument,
    add_key_argument,
    add_metrics_argument,
    add_table_arguments,
    patterns,
    read_place,
)
from .command import Command
from .console import Console, terminal_output
from .formats import DATA_FORMATS, Renderer, change_renderer, noting_statements, sql_renderer

if TYPE_CHECKING:
    from ..config.checkpoint import FileCheckpointStore
    from ..config.options import Options
    from ..config.status import StreamStatus
    from ..stream.binlog_stream import BinlogStream

# More events follow these at once. After any other event the output is flushed, for a reader that waits.
_HELD: Final = (RowsEvent, TableMapEvent)
# Seconds between two reports of a status that has not changed; a day is the longest.
_SELDOM: Final = 86400


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help=DSN_HELP)
    add_table_arguments(parser)
    add_changes_argument(parser)
    add(
        "--from",
        "--start",
        dest="start",
        metavar="PLACE",
        help=f"start at {PLACES}; or snapshot: copy the tables first; default: now",
    )
    add(
        "--stop",
        metavar="PLACE",
        help="stop there: now (the end of the log at this moment), or a place as for --from; default: wait for "
        "new events",
    )
    add("-f", "--format", choices=_FORMATS, help="output format; default: text on a terminal, else json")
    add(
        "--checkpoint",
        metavar="FILE",
        help="save the resume point in FILE; an existing one is used instead of --from",
    )
    add("--server-id", metavar="N", help=SERVER_ID_HELP)
    add_metrics_argument(parser)
    add_key_argument(parser)
    add(
        "--disable-log-bin",
        action="store_true",
        help="with SQL: do not log the replay in the target's binary log (sql_log_bin = 0)",
    )


_EPILOG: Final = """\
Text is for people: one line per transaction (time in UTC, GTID, position), then one line per change, cut at the width
of the terminal. NO_COLOR=1 turns colours off. JSON is one object per line, as decode writes it: row changes have
"op", all other events "event". SQL has generated columns, too, which servers refuse to have written: for tables with
such columns relay the log, and print its files with decode --format sql.

Ctrl-C, SIGTERM and SIGHUP (the terminal is closed, without nohup) stop it cleanly: the exit code is 0, and the last
line on standard error says where to resume. A transaction that was only printed in part is sent again from its
start."""


def _run(options: Namespace, console: Console) -> int:
    from ..config.open_metrics import CONNECTED, open_metrics
    from ..stream.binlog_stream import BinlogStream
    from .metrics import Report, serving_metrics
    from .service import follow_until_stopped

    written = console.result()
    name = options.format or ("text" if written.isatty() else "json")
    if options.disable_log_bin and name != "sql":
        raise ConfigurationError("--disable-log-bin needs --format sql")
    # Text escapes control characters itself, and has colours.
    output = written if name == "text" else terminal_output(written)
    renderer = _FORMATS[name](output, options)
    wanted = _stream_options(options, console, renderer)
    stream = BinlogStream(wanted)
    if options.checkpoint and options.start and os.path.exists(options.checkpoint):
        # A copy that goes on copies tables that --tables selects now, too.
        ignored = "" if options.start == "snapshot" else "; --from is ignored"
        console.note(f"resuming from the checkpoint in {options.checkpoint}{ignored}")

    def report() -> Report:
        status = stream.status
        return Report(status.state, status.state in CONNECTED, open_metrics(status))

    async def follow() -> None:
        async with serving_metrics(options.metrics, report, console):
            await _follow(stream, renderer, noting_statements(renderer, options, console.note), console)

    try:
        follow_until_stopped(stream, follow)
    except BrokenPipeError:
        # The reader of the pipe has gone, and needs no resume point.
        raise
    except BaseException:
        if stream.status.events:
            _tell_resume_point(stream, options, console)
        raise
    _tell_resume_point(stream, options, console)
    return 0


def _start(place: str | None) -> object:
    return place if place in (None, "snapshot") else read_place("--from", place)


def _stream_options(options: Namespace, console: Console, renderer: Renderer) -> "Options":
    """The stream's options from the arguments, with values decoded as the renderer needs them."""
    from protocol.records import replace

    from ..config.options import Options

    if options.start == "snapshot" and options.format == "sql":
        raise ConfigurationError(
            "--from snapshot: rows that were read are no changes to repeat: use JSON or YAML"
        )
    given = {
        "start": _start(options.start),
        "stop": None if options.stop is None else read_place("--stop", options.stop),
        "tables": patterns(options.tables),
        "exclude_tables": patterns(options.exclude_tables),
        "server_id": options.server_id,
        "get_server_public_key": options.get_server_public_key,
        "checkpoints": _store(options.checkpoint, console) if options.checkpoint else None,
        "on_status": _Connection(console),
        # Only changes of the state are of interest.
        "status_interval": _SELDOM,
    }
    wanted = Options.build(options.dsn, given)
    return replace(wanted, cells=getattr(renderer, "cells", None))


class _Connection:
    """Says on standard error that a lost connection is there again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._reconnects = 0

    def __call__(self, status: "StreamStatus") -> None:
        if status.reconnects > self._reconnects and status.state in ("seeking", "streaming"):
            self._reconnects = status.reconnects
            self._console.note(f"connected again to {status.address}")


def _store(path: str, console: Console) -> "FileCheckpointStore":
    from ..config.checkpoint import FileCheckpointStore

    class Store(FileCheckpointStore):
        """Flushes the output before it saves a checkpoint: all events before a checkpoint must have been written."""

        def save(self, checkpoint: Checkpoint) -> None:
            console.output.flush()
            super().save(checkpoint)

    return Store(path)


async def _follow(
    stream: "BinlogStream",
    renderer: Renderer,
    render: Callable[[bytes, int, Event], None],
    console: Console,
) -> None:
    """Write the stream's events until it ends."""
    async with stream:
        console.note(f"following {stream.status.address} ({stream.server_version}); Ctrl-C stops")
        if isinstance(renderer, SqlRenderer) and stream.server_version is not None:
            renderer.follow(stream.server_version)
        flush = console.output.flush
        async for event in stream:
            render(b"", event.position, event)
            if not isinstance(event, _HELD):
                flush()
        renderer.finish()
        flush()


def _tell_resume_point(stream: "BinlogStream", options: Namespace, console: Console) -> None:
    checkpoint, copy = stream.checkpoint, stream.status.snapshot
    if checkpoint is None:
        return
    if console.errors.isatty():
        # Overwrites the ^C that the terminal has printed.
        console.errors.write("\r")
    same = f"the same --checkpoint {shlex.quote(options.checkpoint)}" if options.checkpoint else ""
    if copy is not None and not copy.complete:
        # From a place of the log on, rows that were not copied would never come.
        remedy = f"resume with {same}" if same else "begin again with --from snapshot"
        console.note(f"the copy of the tables is not complete: {remedy}")
        return
    place = checkpoint.gtid_set or f"{checkpoint.file}:{checkpoint.position}"
    console.note(f"resume with --from {shlex.quote(place)}")
    if same:
        console.note(f"or with {same}")


_FORMATS: Final[Mapping[str, Callable[[BinaryIO, Namespace], Renderer]]] = MappingProxyType(
    {
        "text": change_renderer,
        **DATA_FORMATS,
        "sql": sql_renderer,
    }
)

COMMAND: Final = Command("tail", "Print a source's changes as they are made", _add_arguments, _run, _EPILOG)
