"""``mysql-replica decode``: prints binlog files as text, JSON, YAML, SQL, or as SHOW BINLOG EVENTS does.

Reads files and standard input only; ``tail`` reads a running source.
"""

import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final

from protocol.binlog.events import Event
from protocol.errors import ConfigurationError

from ..files.binlog_file import BinlogFile
from ..files.schema_file import SCHEMA_QUERY, read_schema_file
from ..files.table_descriptions import SchemaFile
from ..mysqlbinlog.event_text import TextRenderer
from ..render.event_table import EventTable
from ..render.sql_lines import SqlRenderer
from .arguments import add_changes_argument, add_table_arguments
from .command import Command
from .console import Console, Progress, terminal_output
from .file_arguments import (
    add_file_arguments,
    add_workers_argument,
    check_not_empty,
    check_not_read,
    open_files,
)
from .formats import DATA_FORMATS, Renderer, change_renderer, noting_statements, sql_renderer

# The progress line is updated at most once per this many events.
_PROGRESS_STEP: Final = 256


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="binlog or relay log file, .index file, folder of a relay, or - for standard input",
    )
    add(
        "-f",
        "--format",
        choices=_RENDERERS,
        help="output format; default: text, as mysqlbinlog -vv --base64-output=decode-rows prints it",
    )
    add("--flashback", action="store_true", help="print SQL that undoes the row changes, newest first")
    add("--events", action="store_true", help="print the table of SHOW BINLOG EVENTS")
    add("--hexdump", action="store_true", help="with --format text: add an annotated hex dump of each event")
    add("-o", "--output", metavar="FILE", help="write to FILE; default: standard output")

    where = "an offset, FILE:OFFSET, a GTID set, or a time with its zone (2026-01-31T12:00:00Z)"
    add(
        "--start",
        "--from",
        dest="start",
        metavar="PLACE",
        help=f"start at {where}; a GTID set names the transactions that you already have",
    )
    add("--stop", metavar="PLACE", help=f"stop at {where}; an open transaction is completed first")
    add_table_arguments(parser)
    add_changes_argument(parser)
    add(
        "--schema",
        metavar="FILE[@PLACE]",
        help="JSON file with column names and types that the log does not have (see below); PLACE (such as "
        "binlog.000042:157) says where in the log they are so; or the file of a schema store, which knows its "
        "places; default: relay.schemas beside the files, if a relay has written them; for SQL also the CREATE TABLE "
        "statements in the files",
    )

    add(
        "--disable-log-bin",
        action="store_true",
        help="with SQL: do not log the replay in the target's binary log (sql_log_bin = 0)",
    )
    add(
        "--force",
        action="store_true",
        help="skip damaged events and changes that SQL cannot express; count them",
    )
    add_workers_argument(parser, "--start, --stop, --force and --schema of a store")
    add_file_arguments(parser)


_EPILOG: Final = f"""\
This query, run with mysql -NBr -e "...", prints a schema file (here for the schema shop):

{SCHEMA_QUERY.format(schema="shop")}

With --changes, text is what tail prints on a terminal: a line for each change.

Replay SQL with: mysql --binary-mode < FILE. For tables with generated columns SQL needs a schema file, or their
CREATE TABLE in the files: rows do not say which columns are generated. The log has the rows that triggers changed:
drop the target's triggers first, with --flashback too (mysqldump --no-data --no-create-info prints them), or they run
again. Each CREATE TRIGGER of the log becomes a comment: create these triggers after the replay. Switch the target's
event scheduler off (event_scheduler). MariaDB's system-versioned tables get the history of the log, if they do not
have it yet and the target lets SET TIMESTAMP (secure_timestamp); --flashback brings back their current rows, and
their history tells of the changes and of the undoing."""


def _run(options: Namespace, console: Console) -> int:
    _check(options)
    schema = read_schema_file(options.schema) if options.schema else SchemaFile({}, {})
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(_output(options, console))
        make = _event_table if options.events else _RENDERERS[_format(options)]
        renderer = make(output, options, schema)
        if isinstance(renderer, SqlRenderer):
            stack.callback(renderer.close)
        log = stack.enter_context(
            open_files(options, options.files, schema=options.schema, cells=getattr(renderer, "cells", None))
        )
        if isinstance(renderer, SqlRenderer):
            log.name_by_statements()
            if log.shapes is not None:
                renderer.use_columns(None if schema.generated else log.shapes.generated, log.shapes.periods)
        # No progress line on a terminal that shows the output itself.
        progress = console.progress(log.bytes_total, is_shown=not output.isatty())
        try:
            if options.workers == 1 or not _write_shared(log, options, output, progress):
                _render(log, renderer, progress, noting_statements(renderer, options, console.note))
        finally:
            progress.clear()
            _report(log, renderer, console)
        output.flush()
        check_not_empty(log)
    return 0


def _check(options: Namespace) -> None:
    """Refuse options that exclude one another, or that need another option."""
    sql = _format(options) == "sql" and not options.events
    for name, wanted, is_fit in (
        ("--flashback", options.flashback, sql),
        ("--disable-log-bin", options.disable_log_bin, sql),
        ("--hexdump", options.hexdump, _is_plain_text(options)),
        ("--workers", options.workers != 1, _is_plain_text(options)),
        ("--events", options.events, options.format is None),
        ("--changes", options.changes, not (options.events or options.flashback)),
    ):
        if wanted and not is_fit:
            raise ConfigurationError(f"{name} does not go together with the other options: {_NEEDS[name]}")


_NEEDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--flashback": "it writes SQL; use it alone or with --format sql",
        "--disable-log-bin": "it needs --format sql or --flashback",
        "--hexdump": "it needs --format text, without --changes",
        "--workers": "it needs --format text, without --changes",
        "--changes": "it goes with --format text, json, yaml or sql",
        "--events": "it replaces --format; give only one of them",
    }
)


def _format(options: Namespace) -> str:
    chosen: str = options.format or ("sql" if options.flashback else "text")
    return chosen


def _is_plain_text(options: Namespace) -> bool:
    return _format(options) == "text" and not (options.events or options.changes)


@contextlib.contextmanager
def _output(options: Namespace, console: Console) -> Iterator[BinaryIO]:
    if options.output is None or options.output == "-":
        yield terminal_output(console.result())
        return
    check_not_read("--output", options.output, options.files)
    try:
        file = open(options.output, "wb")  # noqa: SIM115
    except OSError as error:
        raise ConfigurationError(f"--output: {options.output}: {error.strerror or error}") from error
    with file:
        yield file


def _render(
    log: BinlogFile, renderer: Renderer, progress: Progress, render: Callable[[bytes, int, Event], None]
) -> None:
    for number, (raw, position, event) in enumerate(log.raw_events()):
        render(raw, position, event)
        if not number % _PROGRESS_STEP:
            progress.update(log.bytes_read)
    renderer.finish()


def _write_shared(log: BinlogFile, options: Namespace, output: BinaryIO, progress: Progress) -> bool:
    """Write the text by several processes; False if the log must be read by one."""
    from ..files.text_sections import SharedText, TextSetting, render_section

    setting = TextSetting(options.hexdump)
    shared = log.share(options.workers, render_section, setting)
    if shared is None:
        return False
    SharedText(shared, setting, output).write(lambda: progress.update(log.bytes_read))
    return True


def _report(log: BinlogFile, renderer: Renderer, console: Console) -> None:
    """Report what is missing in the output."""
    if log.skipped.events:
        events, skipped = _count(log.skipped.events, "event"), _count(log.skipped.bytes, "byte")
        console.note(f"damaged events were skipped: {events}, {skipped}")
    if log.torn_bytes:
        console.note(f"{log.file}: incomplete event at the end: {_count(log.torn_bytes, 'byte')}")
    if isinstance(renderer, SqlRenderer) and renderer.left_out:
        console.note(f"left out, because SQL cannot express them: {_count(renderer.left_out, 'event')}")
    if isinstance(renderer, SqlRenderer) and renderer.triggers:
        console.note(
            f"left out: {renderer.triggers} CREATE TRIGGER, because the log has the rows that triggers changed; they "
            "are comments in the SQL: create them after the replay"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_Make = Callable[[BinaryIO, Namespace, SchemaFile], Renderer]


def _text(output: BinaryIO, options: Namespace, schema: SchemaFile) -> Renderer:
    return change_renderer(output, options) if options.changes else TextRenderer(output, options.hexdump)


def _sql(output: BinaryIO, options: Namespace, schema: SchemaFile) -> Renderer:
    return sql_renderer(
        output,
        options,
        flashback=options.flashback,
        generated=schema.generated,
        on_unsupported="skip" if options.force else "raise",
    )


_RENDERERS: Final[Mapping[str, _Make]] = MappingProxyType(
    {
        "text": _text,
        "json": lambda output, options, schema: DATA_FORMATS["json"](output, options),
        "yaml": lambda output, options, schema: DATA_FORMATS["yaml"](output, options),
        "sql": _sql,
    }
)


def _event_table(output: BinaryIO, options: Namespace, schema: SchemaFile) -> Renderer:
    return EventTable(output, aligned=output.isatty())


COMMAND: Final = Command(
    "decode", "Print binlog files as text, JSON, YAML or SQL", _add_arguments, _run, _EPILOG
)
