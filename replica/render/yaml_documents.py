"""Events as YAML documents: one document for each object of ``json_lines``. Needs the extra ``[yaml]``."""

import re
from collections.abc import Callable
from typing import Any, BinaryIO

from protocol.binlog.events import Event
from protocol.errors import MissingExtraError

from .json_lines import EventObjects, plain
from .json_values import document_cells

Dump = Callable[[Any], str]

# Unicode's line breaks.
_BREAKS = re.compile("[\x85\u2028\u2029]")
# Long strings stay on one line.
_WIDTH = 1 << 30


class YamlRenderer:
    """Writes events to ``output``, a document for each object. Events must come from a decoder with
    ``renderer.cells``; ``changes_only`` is as in ``JsonRenderer``.

    Raises ``MissingExtraError`` without PyYAML.
    """

    def __init__(self, output: BinaryIO, *, changes_only: bool = False) -> None:
        self.cells = document_cells()
        self._output = output
        self._objects = EventObjects(changes_only=changes_only)
        self._dump = _dump()

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event; ``raw`` and ``position`` are not used: the event has its own."""
        for value in self._objects.of(event):
            self._output.write(self._dump(plain(value)).encode())

    def finish(self) -> None:
        """Do nothing: every document has been written."""


def _dump() -> Dump:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("YAML output", "yaml") from None

    def dumper(base: type[yaml.SafeDumper], is_escaped: bool) -> Dump:
        # No anchors and aliases: each value is written in full, even if two values are one Python object.
        options: dict[str, Any] = {
            "Dumper": type("Dumper", (base,), {"ignore_aliases": lambda self, data: True}),
            "explicit_start": True,
            "sort_keys": False,
            "allow_unicode": not is_escaped,
            "width": _WIDTH,
        }
        return lambda value: str(yaml.dump(value, None, **options))

    escaping_dumper = dumper(yaml.SafeDumper, is_escaped=True)
    # libyaml writes 18,000 objects a second, PyYAML's own writer 3,500. libyaml refuses lone surrogates.
    c_dumper: type[yaml.SafeDumper] | None = getattr(yaml, "CSafeDumper", None)
    usual_dumper = dumper(c_dumper or yaml.SafeDumper, is_escaped=False)

    def dump(value: Any) -> str:
        try:
            text = usual_dumper(value)
        except UnicodeEncodeError:
            return escaping_dumper(value)
        # PyYAML's own writer breaks lines at these characters, and readers then turn them into blanks.
        return escaping_dumper(value) if c_dumper is None and _BREAKS.search(text) else text

    return dump
