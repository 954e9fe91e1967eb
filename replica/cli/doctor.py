"""``mysql-replica doctor``: checks a source for what makes replication fail later, and prints the remedies.

``replica.doctor`` is imported when it runs, so that other subcommands do not load asyncio and TLS.
"""

import json
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ..statistics.layout import Line, Role, Span, printable
from .arguments import DSN_HELP, add_key_argument, add_table_arguments, patterns, read_place
from .command import Command
from .console import Console
from .paint import Paint

if TYPE_CHECKING:
    from ..doctor import Finding, Remedy

_INDENT: Final = 9
_NO_LIMIT: Final = 1 << 30
# Of more remedies, such as one per table, the rest is only printed as JSON.
_SHOWN_REMEDIES: Final = 12
_ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {"ok": "insert", "warning": "update", "failure": "delete"}
)
_PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sql": "as an administrator of the source:",
        "option file": "in the source's option file, section [mysqld]; then restart it:",
        "out of option file": "remove from the source's option file; then restart it:",
        "stream option": "as an option of the stream (in the DSN, after a ?):",
        "shell": "in a shell:",
    }
)
_TO_LAST: Final = "in the source's option file, section [mysqld], for the next restart:"


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help=DSN_HELP)
    add_table_arguments(parser)
    add(
        "--from",
        "--start",
        dest="start",
        metavar="PLACE",
        help="check that the stream can start here (see tail --from); default: now",
    )
    add("--checkpoint", metavar="FILE", help="check that the stream can resume from this checkpoint file")
    add("--server-id", metavar="N", help="check that no other replica of the source has this server_id")
    add_key_argument(parser)
    add("--semi-sync", action="store_true", help="check that the source's commits wait for acknowledgements")
    add("-f", "--format", choices=("text", "json"), default="text", help="output format; default: text")


_EPILOG: Final = """\
The doctor changes nothing on the source. Give it the user and the options that the stream will have; it does not
check what this user may not see. Each line is ok, a warning (data is lost, or the stream fails later) or a failure
(the stream cannot start).

Exit codes: 0 streaming can start, 1 it cannot, 2 invalid arguments."""


def _run(options: Namespace, console: Console) -> int:
    import asyncio

    from ..config.checkpoint import FileCheckpointStore
    from ..doctor import can_start, examine

    findings = asyncio.run(
        examine(
            options.dsn,
            tables=patterns(options.tables),
            exclude_tables=patterns(options.exclude_tables),
            start=read_place("--from", options.start) if options.start else None,
            checkpoints=FileCheckpointStore(options.checkpoint) if options.checkpoint else None,
            server_id=options.server_id,
            get_server_public_key=options.get_server_public_key,
            semi_sync=options.semi_sync or None,
        )
    )
    if options.format == "json":
        document = {"can_start": can_start(findings), "findings": [finding.to_dict() for finding in findings]}
        console.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        paint = Paint(console.output)
        for line in report(findings, paint.width()):
            paint.write(line)
    return 0 if can_start(findings) else 1


def report(findings: "Sequence[Finding]", width: int | None) -> Iterator[Line]:
    """The findings as lines, wrapped at ``width`` columns; None for no limit."""
    from ..doctor import can_start

    for finding in findings:
        first, *more = _wrapped(f"{finding.check}: {finding.message}", width, _INDENT)
        yield [Span(finding.state.ljust(_INDENT), _ROLES[finding.state]), Span(first)]
        for text in more:
            yield [Span(" " * _INDENT + text)]
        yield from _remedies(finding.remedies)
    counts = [(state, sum(finding.state == state for finding in findings)) for state in _ROLES]
    summary = ", ".join(
        f"{count} {state}{'s' * (count > 1 and state != 'ok')}" for state, count in counts if count
    )
    verdict = "streaming can start" if can_start(findings) else "streaming cannot start"
    yield [Span(f"{verdict}: ", "heading"), Span(summary)]


def _remedies(remedies: "Sequence[Remedy]") -> Iterator[Line]:
    """The remedies as lines. They are never wrapped, so that they can be copied."""
    before = ""
    for remedy in remedies[:_SHOWN_REMEDIES]:
        place = _PLACES[remedy.where]
        if remedy.where == "option file" and any(other.where == "sql" for other in remedies):
            place = _TO_LAST
        if place != before:
            yield [Span(" " * _INDENT + place, "comment")]
            before = place
        yield [Span(" " * (_INDENT + 2)), Span(printable(remedy.text), "after")]
    if len(remedies) > _SHOWN_REMEDIES:
        more = f"and {len(remedies) - _SHOWN_REMEDIES} more (--format json prints all)"
        yield [Span(" " * _INDENT + more, "comment")]


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    limit = _NO_LIMIT if width is None else max(width - indent, 20)
    return textwrap.wrap(printable(text), limit, break_long_words=False, break_on_hyphens=False) or [""]


COMMAND: Final = Command(
    "doctor", "Check a source for what makes replication fail later", _add_arguments, _run, _EPILOG
)
