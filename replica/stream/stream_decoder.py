"""``DecoderMaker``: the decoder of each dump of a stream, with the options of the user.

Rows become tuples, or are left undecoded for columns (``read_columns``). Nothing here decodes an event.
"""

from collections.abc import Callable

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.decoder import WantsTable
from protocol.rows.compiler import RowCompiler
from protocol.rows.counting import row_compiler

from ..config.options import Options
from ..config.table_filter import TableFilter, exact_pattern, table_filter
from ..source.dump import Dump


class DecoderMaker:
    """Makes the decoders of one stream. ``wants_table`` is the filter of its tables (None: all)."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.wants_table = table_filter(options.tables, options.exclude_tables)
        self._is_wanted: WantsTable | None = self.wants_table
        self._make_compiler: Callable[[], RowCompiler | None] = lambda: row_compiler(options.row_values)

    def read_columns(self, table: str, make_compiler: Callable[[], RowCompiler]) -> None:
        """Read the rows of this table alone, with these compilers of row readers."""
        selected = self.wants_table
        one = self.wants_table = TableFilter((exact_pattern(table),))
        self._is_wanted = one
        if selected is not None:
            self._is_wanted = lambda schema, name: one(schema, name) and selected(schema, name)
        self._make_compiler = make_compiler

    def make(self, dump: Dump) -> BatchDecoder:
        """A decoder for the events of a dump."""
        options = self._options
        decoder = BatchDecoder(
            file=dump.start_point.file,
            position=dump.start_point.position,
            mariadb=dump.source.is_mariadb,
            verify_checksum=options.verify_checksum,
            wants_table=self._is_wanted,
            columns=options.columns,
            on_schema_mismatch=options.on_schema_mismatch,
            cells=options.cells,
            row_compiler=self._make_compiler(),
            max_event_bytes=options.max_event_bytes,
        )
        decoder.checksum_enabled = dump.has_checksums
        return decoder
