"""``mysql-replica stats``: counts what is in a log, from files or a source; as tables, JSON, and a page with charts.

The stream is only imported to read a source, so that reading files does not load asyncio and TLS.
"""

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigurationError

from ..config.options import SCHEMES
from ..files.counted_sections import count_section, count_shared
from ..statistics.collect import LogStatistics
from ..statistics.figures import number_of, seconds_text, size_text
from ..statistics.text_report import statistics_lines
from .arguments import DSN_HELP, SERVER_ID_HELP, add_key_argument, add_table_arguments, patterns
from .command import Command
from .console import Console, Progress
from .file_arguments import (
    add_file_arguments,
    add_workers_argument,
    check_not_empty,
    check_not_read,
    open_files,
)
from .paint import Paint

if TYPE_CHECKING:
    from ..config.status import StreamStatus

_WIDTH: Final = 80
# The progress line is updated at most once per this many events.
_PROGRESS_STEP: Final = 4096
_LAG_INTERVAL: Final = 1.0


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        nargs="+",
        metavar="FILE|DSN",
        help=f"binlog files, an .index file, a relay's folder, or - for standard input; or the DSN of {DSN_HELP}",
    )
    add("-f", "--format", choices=_FORMATS, default="text", help="output format; default: text")
    add(
        "--html",
        metavar="FILE",
        help="also write a report with charts to FILE: one page that needs no network",
    )
    add_table_arguments(parser)
    where = "an offset (files), FILE:POS, a GTID set, or a time with its zone (2026-01-31T12:00:00Z)"
    add(
        "--start",
        "--from",
        dest="start",
        metavar="PLACE",
        help=f"start at {where}; default: the start of the log",
    )
    add(
        "--stop",
        metavar="PLACE",
        help="stop there, after the open transaction; default: the end of the log at this moment",
    )
    add(
        "--follow",
        action="store_true",
        help="for a source: count new events (or from --start on) until Ctrl-C, and measure the lag",
    )
    add("--server-id", metavar="N", help=f"for a source: {SERVER_ID_HELP}")
    add_key_argument(parser)
    add("--force", action="store_true", help="for files: skip damaged events, and count them")
    add_workers_argument(parser)
    add_file_arguments(parser)


_EPILOG: Final = """\
Row values are not decoded. Changes per minute go by commit time, on the clock of the server that wrote the log.
Lag is the time from a transaction's commit on its original server to its commit on the server that wrote this log
(MySQL 8.0.1 and later). With --follow, lag is the age of the source's newest event when it arrives here.

Ctrl-C stops the count, and prints what was counted until then."""


def _run(options: Namespace, console: Console) -> int:
    _check(options)
    if options.html is None:
        # Fails before a long log is read.
        console.result()
    statistics = LogStatistics()
    try:
        if _is_dsn(options.source[0]):
            _count_source(options, statistics, console)
        else:
            _count_files(options, statistics, console)
    except KeyboardInterrupt:
        console.note("interrupted: these are the counts until then")
    _FORMATS[options.format](statistics, console)
    if options.html is not None:
        _write_page(options.html, statistics)
        console.note(f"report: {options.html}")
    return 0


def _is_dsn(source: str) -> bool:
    return source.startswith(SCHEMES)


def _check(options: Namespace) -> None:
    """Refuse arguments that do not go together, before a long log is read."""
    dsns = sum(map(_is_dsn, options.source))
    if dsns and len(options.source) > 1:
        raise ConfigurationError("stats: give either binlog files or one DSN")
    for name, given in (
        ("--follow", options.follow),
        ("--server-id", options.server_id),
        ("--get-server-public-key", options.get_server_public_key),
    ):
        if given and not dsns:
            raise ConfigurationError(f"{name} needs a source: give its DSN instead of files")
    if options.force and dsns:
        raise ConfigurationError("--force needs files: a damaged event from a source ends the stream")
    if options.workers != 1 and dsns:
        raise ConfigurationError("--workers needs files: the events of a source come one after another")
    if options.follow and options.stop:
        raise ConfigurationError("--follow and --stop exclude one another: --follow runs until Ctrl-C")
    if options.html is not None:
        _check_page(options.html)
        if not dsns:
            check_not_read("--html", options.html, options.source)


def _check_page(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ConfigurationError(
            f"--html: {path} cannot be written: give a file in an existing, writable directory"
        )


def _count_files(options: Namespace, statistics: LogStatistics, console: Console) -> None:
    with open_files(options, options.source, row_values=False, on_schema_mismatch="positional") as log:
        progress = console.progress(log.bytes_total)
        counted = -1
        shared = log.share(options.workers, count_section, None)
        try:
            if shared is not None:
                count_shared(shared, statistics, lambda: progress.update(log.bytes_read))
            while shared is None and statistics.events != counted:
                counted = statistics.events
                statistics.add_all(islice(log, _PROGRESS_STEP))
                progress.update(log.bytes_read)
        finally:
            progress.clear()
        check_not_empty(log)
        if log.skipped.events:
            console.note(f"damaged events skipped: {log.skipped.events} ({log.skipped.bytes} bytes)")


def _count_source(options: Namespace, statistics: LogStatistics, console: Console) -> None:
    from ..config.options import Options
    from ..stream.binlog_stream import BinlogStream
    from .service import follow_until_stopped

    progress = console.progress(None)
    given: dict[str, object] = {
        "start": options.start or ("now" if options.follow else "earliest"),
        "stop": options.stop or (None if options.follow else "now"),
        "tables": patterns(options.tables),
        "exclude_tables": patterns(options.exclude_tables),
        "server_id": options.server_id,
        "get_server_public_key": options.get_server_public_key,
        "on_schema_mismatch": "positional",
        "verify_checksum": not options.no_verify_checksum,
        "max_event_bytes": options.max_event_bytes,
        "row_values": False,
    }
    if options.follow:
        given |= {"on_status": _Lag(statistics, progress), "status_interval": _LAG_INTERVAL}
    stream = BinlogStream(Options.build(options.source[0], given))

    async def count() -> None:
        async with stream:
            if options.follow:
                console.note(
                    f"counting events of {stream.status.address}; Ctrl-C stops and prints the counts"
                )
            async for event in stream:
                statistics.add(event)
                if not options.follow and not statistics.transactions % _PROGRESS_STEP:
                    progress.update(statistics.bytes)

    try:
        follow_until_stopped(stream, count)
    finally:
        progress.clear()


class _Lag:
    """Adds the lag of the stream to the statistics at each status report, and shows what was counted until then."""

    def __init__(self, statistics: LogStatistics, progress: Progress) -> None:
        self._statistics = statistics
        self._progress = progress

    def __call__(self, status: "StreamStatus") -> None:
        statistics = self._statistics
        if status.state == "streaming" and status.seconds_behind is not None:
            statistics.add_behind(status.seconds_behind, time.time())
        counted = (
            f"{number_of(statistics.transactions, 'transaction')}, {number_of(statistics.rows.total, 'row')}"
        )
        self._progress.show(f"{counted}, {size_text(status.bytes)}, {_state_text(status)}")


def _state_text(status: "StreamStatus") -> str:
    if status.state == "waiting":
        return "connection lost, trying again"
    if status.seconds_behind is None:
        return "no event yet"
    return f"{seconds_text(status.seconds_behind)} behind"


def _write_text(statistics: LogStatistics, console: Console) -> None:
    paint = Paint(console.output)
    for line in statistics_lines(statistics, paint.width() or _WIDTH):
        paint.write(line)


def _write_json(statistics: LogStatistics, console: Console) -> None:
    text = json.dumps(statistics.to_dict(), indent=2, ensure_ascii=False)
    # Invalid bytes in names and statements are \udc80 to \udcff, which are escapes of the same form in JSON.
    console.write(f"{text}\n")


def _write_page(path: str, statistics: LogStatistics) -> None:
    from ..statistics.page import statistics_page

    page = statistics_page(statistics).encode("utf-8", "backslashreplace")
    try:
        with open(path, "wb") as file:
            file.write(page)
    except OSError as error:
        raise ConfigurationError(f"--html: {path}: {error.strerror or error}") from error


_FORMATS: Final[Mapping[str, Callable[[LogStatistics, Console], None]]] = MappingProxyType(
    {"text": _write_text, "json": _write_json}
)

COMMAND: Final = Command(
    "stats", "Count a log's row changes and transactions, and measure its lag", _add_arguments, _run, _EPILOG
)
