"""The output formats that ``decode`` and ``tail`` share, and the renderers that write them."""

from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol

from protocol.binlog.events import Event, QueryEvent

from ..config.selection import table_patterns
from ..config.table_filter import table_filter
from ..render.json_lines import JsonRenderer
from ..render.live_changes import ChangeRenderer
from ..render.sql_lines import OnUnsupported, SqlRenderer
from ..render.yaml_documents import YamlRenderer
from ..sql.statement_kind import kind_of
from .arguments import patterns
from .paint import Paint


class Renderer(Protocol):
    """Writes events: ``render`` for each one, then ``finish``."""

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event."""

    def finish(self) -> None:
        """Write the output that was held back."""


def noting_statements(
    renderer: Renderer, options: Namespace, note: Callable[[str], None]
) -> Callable[[bytes, int, Event], None]:
    """``renderer.render``. With ``--changes`` it notes the first changes that were logged without their rows."""
    render = renderer.render
    if not options.changes:
        return render
    is_noted = False

    def watch(raw: bytes, position: int, event: Event) -> None:
        nonlocal is_noted
        render(raw, position, event)
        if type(event) is QueryEvent and not is_noted and kind_of(event) == "dml":
            is_noted = True
            note(
                f"warning: row changes are logged as a statement, without the rows, at {event.file}:"
                f"{event.position}: --changes leaves out these and later ones"
            )

    return watch


#: The formats for programs; ``--changes`` is their only option.
DATA_FORMATS: Final[Mapping[str, Callable[[BinaryIO, Namespace], Renderer]]] = MappingProxyType(
    {
        "json": lambda output, options: JsonRenderer(output, changes_only=options.changes),
        "yaml": lambda output, options: YamlRenderer(output, changes_only=options.changes),
    }
)


def change_renderer(output: BinaryIO, options: Namespace) -> ChangeRenderer:
    """The renderer of changes as text for people; with ``--changes`` it leaves statements out."""
    paint = Paint(output)
    return ChangeRenderer(paint.write, paint.width, with_statements=not options.changes)


def sql_renderer(
    output: BinaryIO,
    options: Namespace,
    *,
    flashback: bool = False,
    generated: Mapping[str, Collection[str]] | None = None,
    on_unsupported: OnUnsupported = "raise",
) -> SqlRenderer:
    """The renderer for SQL, with ``--disable-log-bin``; statements are left out if tables or changes are selected."""
    tables, excluded = patterns(options.tables), patterns(options.exclude_tables)
    wanted = table_patterns("tables", tables or "*"), table_patterns("exclude_tables", excluded or [])
    return SqlRenderer(
        output,
        flashback=flashback,
        generated=generated,
        with_statements=not (tables or excluded or options.changes),
        wants_table=table_filter(*wanted),
        disable_log=options.disable_log_bin,
        on_unsupported=on_unsupported,
    )
