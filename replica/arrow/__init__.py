"""Rows as Arrow columns, without a tuple or a Python object per value: for files and for Spark (extra ``[arrow]``).

    events with undecoded rows -> batches of them -> where rows begin -> where values stand -> arrays

``rawrows`` is what a decoder leaves undecoded; ``plan``, ``offsets`` and ``offsetcode`` find where each row begins,
``places`` where the values of a column are. ``numbers``, ``decimals``, ``temporal``, ``binary``, ``text``, ``labels``
and ``documents`` turn those into arrays, all of a batch at once; ``schema`` says which of them serves a column.
``metadata`` makes columns of what rows have from their event, ``assemble`` and ``builder`` the batches of one table,
and ``reader`` those of a stream of events. Nothing here opens files or speaks to a server.
"""

import sys

from protocol.errors import ConfigurationError, MissingExtraError

try:
    import numpy  # noqa: F401

    # Here, since it takes 100 ms where an array first needs it.
    import pyarrow.compute  # noqa: F401
except ImportError:
    raise MissingExtraError("Reading rows as columns", "arrow") from None

if sys.byteorder != "little":
    # Views of the log's bytes become arrays as they are.
    raise ConfigurationError("rows can be read as columns only where the lowest byte of a number comes first")

from .arrays import Losses
from .builder import BATCH_ROWS, BatchBuilder
from .rawrows import RawRowCompiler
from .reader import SURROUNDING_EVENTS, BatchReader
from .schema import METADATA_COLUMNS, Images, batch_schema

__all__ = [
    "BATCH_ROWS",
    "METADATA_COLUMNS",
    "SURROUNDING_EVENTS",
    "BatchBuilder",
    "BatchReader",
    "Images",
    "Losses",
    "RawRowCompiler",
    "batch_schema",
]
