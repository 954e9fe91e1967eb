"""Zstandard from Python 3.14's own library or its backport (extra ``[zstd]``), imported when it is first asked for.

Which one it is, and that there may be none, is this module's only knowledge.
"""

from types import ModuleType

from .errors import MissingExtraError


def load_zstd(feature: str) -> ModuleType:
    """The module, whose names are those of ``compression.zstd``; ``MissingExtraError`` for the feature without it."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise MissingExtraError(feature, "zstd") from None
    module: ModuleType = zstd
    return module
