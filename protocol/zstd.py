"""Finds Zstandard in Python 3.14's own library or in its backport (extra ``[zstd]``), at first use.

It only imports the library; callers compress and decompress.
"""

from types import ModuleType

from .errors import MissingExtraError


def load_zstd(feature: str) -> ModuleType:
    """A module with the names of ``compression.zstd``; ``MissingExtraError`` for ``feature`` if none is installed."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise MissingExtraError(feature, "zstd") from None
    module: ModuleType = zstd
    return module
