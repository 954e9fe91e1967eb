"""``log.arrow(workers=)``: sections of a log -> Arrow streams in shared memory -> the batches of one reader.

process: section -> columns -> Arrow streams in shared memory
caller:  shared memory -> RecordBatches, without a copy; in the meantime: section -> columns -> RecordBatches
"""

from collections.abc import Generator, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from protocol.records import record

from .sections import OpenSection, SectionLog, SharedReading

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow import BatchReader, Images
    from ..arrow.streams import WrittenStreams


@record(frozen=True, slots=True)
class ColumnSetting:
    """The arguments of ``log.arrow()``."""

    table: str
    columns: Sequence[str] | None
    images: "Images"
    metadata: Sequence[str] | None
    batch_rows: int


class SectionColumns:
    """Reads columns of sections, one after the other, in one process.

    Each section begins with the tables and the row sizes known from earlier sections: learning them again took 1.3 ms
    a section for a table of 4 columns, and 3 ms for 19 columns.
    """

    def __init__(self, setting: ColumnSetting) -> None:
        self._setting = setting
        self._log: SectionLog | None = None
        self._reader: BatchReader | None = None

    def read(self, open_section: OpenSection) -> "BatchReader":
        """The columns of a section; until the next call."""
        log = open_section(log=self._log)
        if self._reader is None:
            self._log = log
            setting = self._setting
            self._reader = log.arrow(
                setting.table,
                columns=setting.columns,
                images=setting.images,
                metadata=setting.metadata,
                batch_rows=setting.batch_rows,
            )
        else:
            self._reader.go_on_with(iter(log))
        return self._reader


def read_columns(
    open_section: OpenSection, columns: SectionColumns, given: object, output: IO[bytes]
) -> "WrittenStreams":
    """The work of a process on one section."""
    from ..arrow.streams import write_streams

    return write_streams(columns.read(open_section), output)


def shared_batches(
    shared: SharedReading, columns: SectionColumns, reader: "BatchReader"
) -> Iterator["pa.RecordBatch"]:
    """The batches of all sections, in order; the first error comes after the batches before it."""
    from ..arrow.streams import WrittenStreams, read_streams

    def read_here(open_section: OpenSection) -> "Generator[pa.RecordBatch, None, WrittenStreams]":
        own = columns.read(open_section)
        failed: Exception | None = None
        try:
            yield from own
        except Exception as error:
            failed = error
        return WrittenStreams([], own.losses, failed)

    def finish(facts: WrittenStreams) -> None:
        reader.losses.add(facts.losses)
        if facts.error is not None:
            raise facts.error

    with shared:
        yield from shared.parts(read_here, read_streams, finish)
