"""``mysql-replica copy``: a consistent export of tables into files, with the checkpoint from which to follow them.

The export is imported when it runs, so that other subcommands do not load asyncio and TLS.
"""

import shlex
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigurationError

from ..statistics.layout import printable
from .arguments import DSN_HELP, SERVER_ID_HELP, add_key_argument, patterns
from .command import EXIT_INTERRUPTED, Command
from .console import Console, clock_text

if TYPE_CHECKING:
    from ..config.options import Options
    from ..config.snapshot_status import SnapshotStatus
    from ..export.exporter import Exporter

# Seconds between two lines where there is no terminal.
_INTERVAL: Final = 10.0
_EPILOG: Final = """\
The files hold the tables as they are at one place of the log, and DIR/checkpoint.json is that place. Go on from there
with `mysql-replica tail DSN --checkpoint DIR/checkpoint.json`, or in Python with
replica.connect(dsn, checkpoints=replica.FileCheckpointStore("DIR/checkpoint.json")).

Nothing is locked on the source, no transaction lasts longer than a chunk, and SELECT, REPLICATION SLAVE and
REPLICATION CLIENT (MariaDB: BINLOG MONITOR) are enough. Rows are read in chunks while the log is followed; rows that
changed meanwhile are replaced in the files at the end. So the source must log whole rows (binlog_row_image=FULL), and
keep its log until the copy ends. DDL of a table begins that table again. A table that is created meanwhile is not
copied; a warning names it if it has got rows.

Ctrl-C or a kill loses at most the last ten seconds: run the same command again to go on. The exit code is 0 if the
copy is finished, and 130 after Ctrl-C, SIGTERM and SIGHUP. Each table has a folder, DIR/schema.table, where special
characters of names are percent-encoded (quote() of urllib). JSON lines have the values that tail prints. CSV: NULL is
an empty field, text is in quotation marks, bytes are hexadecimal digits ("" if there are none). Parquet has the types
of Arrow; zero and partial dates, and dates of the year 0, become null.

Tables without a key: with MySQL's GTIDs as they are, else with 'mysql://...?snapshot_locking=rows' as DSN."""


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help=DSN_HELP)
    add(
        "--tables",
        metavar="PATTERNS",
        action="append",
        help="copy these tables, such as shop.*,crm.user; default: all",
    )
    add("--exclude-tables", metavar="PATTERNS", action="append", help="do not copy these tables")
    add("--to", metavar="DIR", required=True, help="the folder of the files: a new or empty one")
    add(
        "-f",
        "--format",
        choices=("parquet", "jsonl", "csv"),
        default="parquet",
        help="format of the files; default: parquet, which needs the extra [arrow]",
    )
    add("--file-rows", metavar="N", default="1000000", help="rows per file; default: 1000000")
    add("--server-id", metavar="N", help=SERVER_ID_HELP)
    add_key_argument(parser)


def _run(options: Namespace, console: Console) -> int:
    from ..export.exporter import Exporter
    from .service import follow_until_stopped

    exporter = Exporter(_stream_options(options), options.to, options.format, _file_rows(options.file_rows))
    progress = _CopyProgress(console)
    try:
        if exporter.is_resumed:
            console.note(f"going on with the copy in {options.to}")
        if not exporter.is_copied:
            follow_until_stopped(exporter.stream, lambda: _copy(exporter, console, progress))
        progress.clear()
        if not exporter.is_copied:
            console.note("stopped; the same command goes on")
            return EXIT_INTERRUPTED
        _finish(exporter, options, console)
    except Exception:
        progress.clear()
        if exporter.is_resumed:
            console.note(f"to begin again instead of going on, remove {options.to}")
        raise
    finally:
        exporter.close()
    return 0


async def _copy(exporter: "Exporter", console: Console, progress: "_CopyProgress") -> None:
    async with exporter.stream as stream:
        console.note(f"copying from {stream.status.address} ({stream.server_version}); Ctrl-C stops")

        def show(status: "SnapshotStatus") -> None:
            progress.update(status, exporter.waits_for if status.complete else [])

        await exporter.copy(show)


def _finish(exporter: "Exporter", options: Namespace, console: Console) -> None:
    for table in exporter.dropped:
        console.note(f"warning: {table} was dropped or renamed during the copy, and has no files")
    for table in exporter.left_out:
        console.note(f"warning: {table} was created during the copy, and has no files")
    tables = rows = 0
    for table, count in exporter.finish():
        console.write(f"{count:>14,}  {printable(table)}\n")
        tables, rows = tables + 1, rows + count
    console.output.flush()
    path = f"{options.to.rstrip('/')}/checkpoint.json"
    console.note(
        f"{tables} table{'s' * (tables != 1)}, {rows:,} row{'s' * (rows != 1)} as of the place in {path}"
    )
    console.note(f"follow them with: mysql-replica tail DSN --checkpoint {shlex.quote(path)}")


def _stream_options(options: Namespace) -> "Options":
    from ..config.options import Options

    return Options.build(
        options.dsn,
        {
            "tables": patterns(options.tables),
            "exclude_tables": patterns(options.exclude_tables),
            "server_id": options.server_id,
            "get_server_public_key": options.get_server_public_key,
        },
    )


def _file_rows(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ConfigurationError(f"--file-rows: {text!r} is not a number from 1 on")
    return int(text)


class _CopyProgress:
    """How far the copy is: a line that changes on a terminal, else a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_terminal = console.errors.isatty()
        self._line = console.progress(None)
        self._begun = self._last = time.monotonic()
        self._first: int | None = None

    def update(self, status: "SnapshotStatus", waits_for: list[str]) -> None:
        """Show the status; without a terminal, seldom."""
        now = time.monotonic()
        if self._first is None:
            # Rows of an earlier run took no time of this one.
            self._first = status.rows
        if not self._is_terminal and now - self._last < _INTERVAL:
            return
        self._last = now
        text = copy_text(status, (status.rows - self._first) / (now - self._begun))
        if waits_for:
            text = f"all rows are read; waits for the end of the prepared XA transaction {waits_for[0]}"
        if self._is_terminal:
            self._line.show(text)
        else:
            self._console.note(text)

    def clear(self) -> None:
        """Erase the line."""
        self._line.clear()


def copy_text(status: "SnapshotStatus", rate: float) -> str:
    """Such as "25%, 0:45 left, 3 of 5 tables, 1,200,000 of about 4,800,000 rows, 80,000/s"."""
    # The first rows say nothing of the time that is left.
    is_known = rate > 0 and status.rows * 100 >= status.estimate
    left = f"{clock_text((status.estimate - status.rows) / rate)} left, " if is_known else ""
    tables = f"{status.tables_complete} of {status.tables} tables"
    rows = f"{status.rows:,} of about {status.estimate:,} rows"
    return f"{status.rows / max(status.estimate, 1):.0%}, {left}{tables}, {rows}, {rate:,.0f}/s"


COMMAND: Final = Command(
    "copy", "Copy tables into files, consistently, while they are written to", _add_arguments, _run, _EPILOG
)
