"""Batches as bytes that processes share: one Arrow stream for each schema, one after another.

The bytes are read without a copy: a batch keeps the memory that holds them.
"""

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from protocol.records import record

from .arrays import Losses
from .reader import BatchReader


@record(slots=True)
class WrittenStreams:
    """The ends of the streams, the values that Arrow could not hold, and the error that ended reading."""

    ends: list[int]
    losses: Losses
    error: Exception | None = None


def write_streams(reader: BatchReader, output: IO[bytes]) -> WrittenStreams:
    """Write the batches of a reader, up to its error."""
    written = WrittenStreams([], reader.losses)
    stream: pa.RecordBatchStreamWriter | None = None
    schema: pa.Schema | None = None
    try:
        for batch in reader:
            if batch.schema != schema:
                _end(stream, written, output)
                schema = batch.schema
                stream = pa.ipc.new_stream(output, schema)
            assert stream is not None
            stream.write_batch(batch)
    except Exception as error:
        written.error = error
    _end(stream, written, output)
    return written


def _end(stream: "pa.RecordBatchStreamWriter | None", written: WrittenStreams, output: IO[bytes]) -> None:
    if stream is not None:
        stream.close()
        written.ends.append(output.tell())


def read_streams(data: object, written: WrittenStreams) -> Iterator[pa.RecordBatch]:
    """The batches in these bytes."""
    buffer, begin = pa.py_buffer(data), 0
    for end in written.ends:
        with pa.ipc.open_stream(buffer.slice(begin, end - begin)) as stream:
            yield from stream
        begin = end
