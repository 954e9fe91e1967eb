"""``Deliveries``: the deliveries of one stream, one after another, and how far the user is between two of them."""

import logging
from collections.abc import Callable
from typing import Final

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.decoder import WantsTable
from protocol.errors import ConfigurationError, PositionInsideEventError
from protocol.records import replace
from protocol.rows.compiler import RowCompiler
from protocol.rows.counting import row_compiler

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.table_filter import TableFilter, exact_pattern, table_filter
from ..config.table_names import split_text
from ..config.unmatched_patterns import warn_of_unmatched
from ..schemas.schema_tracker import SchemaTracker
from ..source.dump import Dump
from ..source.open_dump import Broken
from ..source.resolve_start import is_same_server
from ..source.session import Session
from ..transactions.replay import CannotResumeError, Replay, TransactionRestarted
from .batch import Account
from .bounds import Bounds
from .delivery import Delivery

_LOGGER: Final = logging.getLogger(__name__)


class Deliveries:
    """The deliveries of one stream. ``current`` is None before the first dump, and from a loss to the next dump.

    ``broken`` says how far the user had come at the last loss; None before the first. ``wants_table`` is the filter
    of the stream's tables (None: all).
    """

    def __init__(self, options: Options, tracker: SchemaTracker, account: Account, bounds: Bounds) -> None:
        self.current: Delivery | None = None
        self.broken: Broken | None = None
        self._options = options
        self._tracker = tracker
        self._account = account
        self._bounds = bounds
        # With an interval of 0 the checkpoint is saved at each transaction: then each transaction is a batch.
        self._is_divided = options.checkpoints is not None and not options.checkpoint_interval
        self.wants_table = table_filter(options.tables, options.exclude_tables)
        self._is_wanted: WantsTable | None = self.wants_table
        self._make_compiler: Callable[[], RowCompiler | None] = lambda: row_compiler(options.row_values)

    @property
    def session(self) -> Session | None:
        """The connection of the current dump."""
        return None if self.current is None else self.current.dump.session

    @property
    def is_awaited(self) -> bool:
        """Whether a semi-synchronous source waits for an acknowledgement."""
        return self.current is not None and self.current.is_awaited

    def begin(self, dump: Dump, replay: Replay | None = None) -> None:
        """The next events come from this dump; ``replay`` passes over those that the user already has.

        Raises ``SourceChangedError`` if the stream's stop is only a position and another server answers.
        """
        if self.broken is not None and not is_same_server(self.broken.identity, dump.source):
            self._bounds.move()
            self._account.move()
        decoder, divided = self._decoder(dump), self._is_divided
        self.current = Delivery(
            dump, decoder, self._tracker, self._account, self._bounds, replay, is_divided=divided
        )

    def break_off(self, error: Exception) -> None:
        """Close the connection, drop all its events that were not handed out, and note how far the user has come."""
        if self.current is not None:
            self.current.dump.session.abort()
            self.broken = self.current.broken(self.broken)
            self.current = None
        if self.broken is not None and isinstance(error, PositionInsideEventError):
            self.broken = self.broken.behind_torn_event()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.session is not None:
            self.session.abort()

    async def aclose(self) -> None:
        """Close the connection."""
        if self.session is not None:
            await self.session.aclose()

    def restart(self, difference: CannotResumeError) -> TransactionRestarted:
        """The open transaction cannot go on: void its delivered part, and read it again from its beginning."""
        assert self.broken is not None
        end, self.broken = self.broken.end, replace(self.broken, end=None)
        gtid, reason = None if end is None else end.gtid, str(difference)
        facts = log_facts("transaction-restarted", source=self._options.address, gtid=gtid, reason=reason)
        text = "transaction %s is delivered again from its beginning: %s"
        _LOGGER.warning(text, gtid, reason, extra=facts)
        return self._account.restart(gtid, reason)

    def warn_of_unmatched(self) -> None:
        """At the end of the stream: log a warning for each pattern of the options that no table has matched."""
        copy = self._account.copy
        warn_of_unmatched(self.wants_table, self._options.address, () if copy is None else copy.tables)

    def read_columns(self, table: str, make_compiler: Callable[[], RowCompiler]) -> None:
        """Read the rows of this table alone, with these compilers of row readers: they are left undecoded.

        Raises ``ConfigurationError`` if events have been read.
        """
        if self._account.last is not None or (self.current is not None and self.current.dump.has_begun):
            raise ConfigurationError(
                "arrow() must be called before any event is read: connect another stream"
            )
        selected = self.wants_table
        one = self.wants_table = TableFilter((exact_pattern(*split_text(table)),))
        self._is_wanted = one
        if selected is not None:
            self._is_wanted = lambda schema, name: one(schema, name) and selected(schema, name)
        self._make_compiler = make_compiler
        self._account.leave_rows()
        if self.current is not None:
            self.begin(self.current.dump)

    def _decoder(self, dump: Dump) -> BatchDecoder:
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
