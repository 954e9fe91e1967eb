"""``mysql-replica demo``: runs a source in this process, and prints the changes that a replica of it sees.

It needs no server, no Docker and no privileges: ``replica.demo`` serves a recorded log on this machine, and a stream
reads it over TCP, as from any other source. asyncio and TLS are imported when it runs, for a fast start.
"""

import os
import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from protocol.binlog.events import Event

from ..render.live_changes import ChangeRenderer
from ..statistics.collect import LogStatistics
from ..statistics.layout import Line, Span
from ..statistics.text_report import Column, TextTable
from .command import Command
from .console import PROGRAM, Console
from .paint import Paint

if TYPE_CHECKING:
    from ..demo import DemoSource

#: Transactions with row changes that are shown without ``--all``.
SHOWN: Final = 11
_YOURS: Final = "mysql://USER:PASSWORD@HOST:3306"
#: Commands to try next: a comment, the arguments, and whether the recorded log's path is the last argument.
NEXT_STEPS: Final = (
    ("is your own server ready for replicas?", ("doctor", _YOURS), False),
    ("its changes, as they are made", ("tail", _YOURS), False),
    ("the demo's source, for your own code", ("demo", "--serve"), False),
    ("statistics of the demo's log, and the log as SQL", ("stats",), True),
    ("", ("decode", "--format=sql"), True),
)


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--all",
        action="store_true",
        help=f"show all transactions; default: the first {SHOWN} with row changes",
    )
    add("--serve", action="store_true", help="only serve the log, to other programs, until Ctrl-C")


_EPILOG: Final = """\
The log holds half an hour of a small shop, recorded on MySQL 9.7: customers, orders with JSON, ENUM, DECIMAL and
DATETIME columns, and order items."""


def _run(options: Namespace, console: Console) -> int:
    import asyncio

    paint = Paint(console.output)
    if options.serve:
        _serve(paint, console)
    else:
        asyncio.run(_show(paint, None if options.all else SHOWN))
    return 0


class Shown:
    """Shows a stream's transactions up to the ``most``-th with row changes, and counts all of them."""

    def __init__(self, paint: Paint, most: int | None = None) -> None:
        self.statistics = LogStatistics()
        self.renderer = ChangeRenderer(paint.write, paint.width)
        self._most = most
        self._shown = 0

    def add(self, event: Event) -> None:
        """Count the next event, and show it if it is among the first."""
        is_wanted = self._most is None or self.statistics.with_rows < self._most
        if is_wanted:
            self.renderer.render(b"", event.position, event)
        self.statistics.add(event)
        if is_wanted:
            self._shown = self.statistics.transactions

    def summary(self, seconds: float) -> Iterator[Line]:
        """How many transactions were not shown, and the row changes of all of them."""
        statistics = self.statistics
        left = statistics.transactions - self._shown
        if left:
            yield [Span(f"  ... and {left} more transactions (--all shows them)", "comment")]
        yield []
        yield from _table(statistics).lines(80)
        yield []
        rows, count = statistics.rows.total, statistics.transactions
        yield [Span(f"{rows} row changes in {count} transactions, read in {seconds:.2f} s")]


def _table(statistics: LogStatistics) -> TextTable:
    columns = [
        Column("table", role="table"),
        *(Column(name, True) for name in ("insert", "update", "delete")),
    ]
    counted = sorted(statistics.tables, key=str)
    rows = [(str(one), str(one.inserts), str(one.updates), str(one.deletes)) for one in counted]
    return TextTable("Row changes", columns, rows)


async def _show(paint: Paint, most: int | None) -> None:
    from protocol.records import replace

    from ..config.options import Options
    from ..demo import DemoSource
    from ..stream.binlog_stream import BinlogStream

    shown = Shown(paint, most)
    async with DemoSource() as source:
        options = Options.build(source.dsn, {"start": "earliest", "stop": "now"})
        _write(paint, _introduction(source))
        start = time.perf_counter()
        async with BinlogStream(replace(options, cells=shown.renderer.cells)) as stream:
            note = f"logged in, registered as replica {options.server_id}, reading from the earliest event"
            paint.write([Span(note, "comment")])
            async for event in stream:
                shown.add(event)
        seconds = time.perf_counter() - start
    _write(paint, shown.summary(seconds))
    _write(paint, _next_steps())


def _introduction(source: "DemoSource") -> Iterator[Line]:
    yield [Span(f"Half an hour of a small shop, recorded on MySQL {_number(source)}.", "heading")]
    yield [Span("A server in this process sends the log, and a replica of it prints the changes:")]
    yield []
    yield [Span(f'    replica.connect("mysql://demo:***@{source.address}", start="earliest")', "name")]
    yield []


def _next_steps() -> Iterator[Line]:
    from ..demo import installed_log

    log = installed_log()
    yield []
    yield [Span("Next:", "heading")]
    for reason, arguments, takes_log in NEXT_STEPS:
        if takes_log and log is None:
            continue
        path = (shown_path(str(log)),) if takes_log else ()
        if reason:
            yield [Span(f"  # {reason}", "comment")]
        yield [Span(f"  {' '.join((own_command(), *arguments, *path))}")]


def own_command() -> str:
    """The command that runs this program: its name if it is on PATH, else the way it was started."""
    if shutil.which(PROGRAM):
        return PROGRAM
    called = sys.argv[0]
    if os.path.basename(called) == PROGRAM and os.access(called, os.X_OK):
        return shown_path(called)
    return f"{os.path.basename(sys.executable)} -m replica"


def shown_path(path: str) -> str:
    """The path relative to the current directory, if that is shorter."""
    try:
        return min(os.path.relpath(path), path, key=len)
    except ValueError:  # another drive
        return path


def _serve(paint: Paint, console: Console) -> None:
    import asyncio

    from ..demo import DemoSource
    from .service import run_until_stopped

    stopping = asyncio.Event()

    async def serve() -> None:
        async with DemoSource() as source:
            _write(paint, _invitation(source))
            console.output.flush()
            await stopping.wait()

    async def stop() -> None:
        stopping.set()

    run_until_stopped(serve, stop)


def _invitation(source: "DemoSource") -> Iterator[Line]:
    yield [Span(f"Half an hour of a small shop (MySQL {_number(source)}), served until Ctrl-C:", "heading")]
    yield [Span("  # on the command line", "comment")]
    yield [Span(f"  {own_command()} tail {source.dsn} --from earliest")]
    yield [Span("  # from Python", "comment")]
    yield [Span(f'  replica.connect("{source.dsn}", start="earliest")')]


def _number(source: "DemoSource") -> str:
    return source.version.partition("-")[0]


def _write(paint: Paint, lines: Iterator[Line]) -> None:
    for line in lines:
        paint.write(line)


COMMAND: Final = Command(
    "demo", "Show the changes that a replica sees, without a server", _add_arguments, _run, _EPILOG
)
