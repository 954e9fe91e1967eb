"""What events are written as: the renderers that ``decode`` and ``tail`` share."""

from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol

from protocol.binlog.events import Event

from ..render.json_lines import JsonRenderer
from ..render.sql_lines import OnUnsupported, SqlRenderer
from ..render.yaml_documents import YamlRenderer


class Renderer(Protocol):
    """What writes events: each with ``render``, and ``finish`` at the end."""

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event."""

    def finish(self) -> None:
        """Write what was held back."""


#: The formats that have no options.
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
    """SQL, as ``--disable-log-bin`` and the tables' arguments want it."""
    return SqlRenderer(
        output,
        flashback=flashback,
        generated=generated,
        with_statements=not (options.tables or options.exclude_tables),
        disable_log=options.disable_log_bin,
        on_unsupported=on_unsupported,
    )
