"""Compiles generated functions so that tracebacks and debuggers show their source.

They ask the loader of the module that a function's globals name (PEP 302, ``linecache.lazycache``). To put the source
into ``linecache`` would import it, and ``tokenize``, at each start, and keep the text of functions that are gone.
"""

from types import CodeType
from typing import Any
from zlib import crc32


class _Loader:
    """Has the source of one function."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, name: str) -> str:
        """The source of the module with this name, as loaders have it."""
        return self._source


def compiled(source: str, kind: str) -> CodeType:
    """The code of generated text. Names of files in angle brackets have no source."""
    return compile(source, f"{kind} {crc32(source.encode()):08x}", "exec")


def run(source: str, kind: str, namespace: dict[str, Any], code: CodeType | None = None) -> None:
    """Define the function of generated text in ``namespace``, which becomes its globals."""
    namespace |= {"__name__": kind, "__loader__": _Loader(source)}
    exec(code or compiled(source, kind), namespace)
