"""Rows as Arrow columns, without a tuple or a Python object per value: for files and for Spark (extra ``[arrow]``).

    events with undecoded rows -> the places where rows begin -> the places of values -> arrays -> RecordBatches

    rawrows      the undecoded rows that a decoder puts into events
    buffer       the rows of many events as one run of bytes
    plan         the layout of a row image, as the next two need it
    row_starts   the places where rows begin, for many events at once
    row_walker   the same for few large events, by a compiled loop
    places       the places of the values of each column
    schema       the Arrow type and the converter of each column
    numbers, decimals, temporal, binary, strings, labels, documents    the converters: places -> arrays
    arrays       what the converters share
    metadata     columns of the event's facts: operation, time, position, GTID
    assemble     pending events -> one batch
    builder      the batches of one table
    reader       the batches of a stream of events
    streams      batches as bytes that processes share

Nothing here opens files or connects to a server.
"""

import sys

from protocol.errors import ConfigurationError, MissingExtraError

try:
    import numpy  # noqa: F401

    # Imported here: otherwise the first array that needs it would take 100 ms.
    import pyarrow.compute  # noqa: F401
except ImportError:
    raise MissingExtraError("Reading rows as columns", "arrow") from None

if sys.byteorder != "little":
    # The log's bytes become arrays without conversion.
    raise ConfigurationError(
        "rows can be read as Arrow columns on little-endian machines only: read them as tuples instead"
    )

from .arrays import Losses
from .builder import BATCH_ROWS, BatchBuilder
from .rawrows import RawRowCompiler, layout_cells
from .reader import SURROUNDING_EVENTS, BatchReader, check_schema
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
    "check_schema",
    "layout_cells",
]
