"""The output formats that ``decode`` and ``tail`` share, and the renderers that write them."""

from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol

from protocol.binlog.events import Event

from ..render.json_lines import JsonRenderer
from ..render.sql_lines import OnUnsupported, SqlRenderer
from ..render.yaml_documents import YamlRenderer


class Renderer(Protocol):
    """Writes events: ``render`` for each one, then ``finish``."""

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event."""

    def finish(self) -> None:
        """Write the output that was held back."""


#: The formats without options.
DATA_FORMATS: Final[Mapping[str, Callable[[BinaryIO], Renderer]]] = MappingProxyType(
    {"json": JsonRenderer, "yaml": YamlRenderer}
)


def sql_renderer(
    output: BinaryIO,
    options: Namespace,
    *,
    flashback: bool = False,
    generated: Mapping[str, Collection[str]] | None = None,
    on_unsupported: OnUnsupported = "raise",
) -> SqlRenderer:
    """The renderer for SQL, with ``--disable-log-bin``; statements are left out if tables are selected."""
    return SqlRenderer(
        output,
        flashback=flashback,
        generated=generated,
        with_statements=not (options.tables or options.exclude_tables),
        disable_log=options.disable_log_bin,
        on_unsupported=on_unsupported,
    )
