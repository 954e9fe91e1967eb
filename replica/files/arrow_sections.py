"""``log.arrow(workers=)``: sections of a log -> Arrow streams in shared memory -> the batches of one reader.

process: section -> log.arrow() -> Arrow streams in shared memory
caller:  shared memory -> RecordBatches, without a copy
"""

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final

from protocol.records import record

from .sections import OpenSection, SharedReading

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow import BatchReader, Images
    from ..arrow.streams import WrittenStreams

#: Batches are not larger than a section, and small batches take more time per row.
SECTION_BYTES: Final = 8 << 20


@record(frozen=True, slots=True)
class ColumnSetting:
    """The arguments of ``log.arrow()``."""

    table: str
    columns: Sequence[str] | None
    images: "Images"
    metadata: Sequence[str] | None
    batch_rows: int


def read_columns(
    open_section: OpenSection, setting: ColumnSetting, given: object, output: IO[bytes]
) -> "WrittenStreams":
    """What a process does with a section."""
    from ..arrow.streams import write_streams

    reader = open_section(None).arrow(
        setting.table,
        columns=setting.columns,
        images=setting.images,
        metadata=setting.metadata,
        batch_rows=setting.batch_rows,
    )
    return write_streams(reader, output)


def shared_batches(shared: SharedReading, reader: "BatchReader") -> Iterator["pa.RecordBatch"]:
    """The batches of all sections, in order; the first error comes after the batches before it."""
    from ..arrow.streams import WrittenStreams, read_streams

    with shared:
        for _, answer in shared.answers():
            if answer.error is not None:
                raise answer.error
            assert isinstance(answer.facts, WrittenStreams)
            yield from read_streams(answer.data, answer.facts)
            reader.losses.add(answer.facts.losses)
            if answer.facts.error is not None:
                raise answer.facts.error
