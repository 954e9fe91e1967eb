"""``mysql-replica doctor``: what will make replication from a source fail later, and what to type now.

What it stands on is imported when it runs: other subcommands shall not wait for asyncio and TLS.
"""

import json
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ..statistics.layout import Line, Role, Span, printable
from .arguments import DSN_HELP, add_table_arguments, patterns, read_place
from .command import Command
from .console import Console
from .paint import Paint

if TYPE_CHECKING:
    from ..doctor import Finding, Remedy

_INDENT: Final = 9
_NO_LIMIT: Final = 1 << 30
# More than these, such as one for each table, are in the JSON.
_SHOWN_REMEDIES: Final = 12
_ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {"ok": "insert", "warning": "update", "failure": "delete"}
)
_PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sql": "as an administrator of the source:",
        "option file": "in the source's option file, section [mysqld]; then restart it:",
        "out of option file": "take out of the source's option file, and restart it:",
        "stream option": "as an option of the stream (in the DSN behind a ?):",
        "shell": "in a shell:",
    }
)
_TO_LAST: Final = "in the source's option file, section [mysqld], to outlive a restart:"


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help=DSN_HELP)
    add_table_arguments(parser)
    add(
        "--from",
        dest="start",
        metavar="PLACE",
        help="where the stream is to begin, as for tail; default: now",
    )
    add("--checkpoint", metavar="FILE", help="the stream's resume point: is it still in the log?")
    add("--server-id", metavar="N", help="the stream's id: has another replica of the source the same?")
    add("--semi-sync", action="store_true", help="the stream is to be semi-synchronous")
    add("-f", "--format", choices=("text", "json"), default="text", help="default: text")


_EPILOG: Final = """\
Nothing is changed on the source. Give the options that the stream will have, and its user: what that user may not see
is not looked at. Each line is ok, a warning (something is lost, or fails later) or a failure (no stream can start).

Exit codes: 0 streaming can start, 1 it cannot, 2 the arguments cannot be used."""


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
            semi_sync=options.semi_sync or None,
        )
    )
    if options.format == "json":
        document = {"can_start": can_start(findings), "findings": [finding.to_dict() for finding in findings]}
        console.output.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
    else:
        paint = Paint(console.output)
        for line in report(findings, paint.width()):
            paint.write(line)
    return 0 if can_start(findings) else 1


def report(findings: "Sequence[Finding]", width: int | None) -> Iterator[Line]:
    """The findings as lines, wrapped at so many columns if there is a limit."""
    from ..doctor import can_start

    for finding in findings:
        first, *more = _wrapped(f"{finding.check}: {finding.message}", width, _INDENT)
        yield [Span(finding.state.ljust(_INDENT), _ROLES[finding.state]), Span(first)]
        for text in more:
            yield [Span(" " * _INDENT + text)]
        yield from _remedies(finding.remedies)
    counts = [(state, sum(finding.state == state for finding in findings)) for state in _ROLES]
    told = ", ".join(
        f"{count} {state}{'s' * (count > 1 and state != 'ok')}" for state, count in counts if count
    )
    verdict = "streaming can start" if can_start(findings) else "streaming cannot start"
    yield [Span(f"{verdict}: ", "heading"), Span(told)]


def _remedies(remedies: "Sequence[Remedy]") -> Iterator[Line]:
    """What to type is never wrapped: it is there to be copied."""
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
        more = f"and {len(remedies) - _SHOWN_REMEDIES} more, which --format json has"
        yield [Span(" " * _INDENT + more, "comment")]


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    limit = _NO_LIMIT if width is None else max(width - indent, 20)
    return textwrap.wrap(printable(text), limit, break_long_words=False, break_on_hyphens=False) or [""]


COMMAND: Final = Command(
    "doctor", "Find what will make replication fail later, and what to do", _add_arguments, _run, _EPILOG
)
