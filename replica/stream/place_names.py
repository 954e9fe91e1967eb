"""``PlaceNames``: what the schema history says of decoded events: names for table maps, changes behind statements.

``Delivery`` calls it for each run of decoded events, before later events are decoded. It awaits nothing.
"""

from collections.abc import Sequence

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.events import Event, QueryEvent, RotateEvent, TableMapEvent
from protocol.rows.table import Table

from ..schemas.change_event import SchemaChangeEvent
from ..schemas.schema_tracker import SchemaTracker
from .batch import Batch


class PlaceNames:
    """Stands between the decoder of one dump and its stream's ``SchemaTracker``."""

    def __init__(self, tracker: SchemaTracker, decoder: BatchDecoder) -> None:
        self._tracker = tracker
        self._decoder = decoder
        # How many statements of the decoder the tracker has followed.
        self._followed = 0
        # What statements of the next batch change in wanted tables, by the place of the statement.
        self._changes: dict[tuple[str, int], list[SchemaChangeEvent]] = {}

    def begin_at(self, event: RotateEvent, *, is_exact: bool) -> None:
        """A dump tells its place, or one before it, before its first event of the log."""
        self._tracker.begin_at(event.next_file, event.next_position, is_exact=is_exact)

    def take_file(self, begun: tuple[str, int] | None) -> None:
        """A format description tells when its file was begun; None if that tells nothing."""
        if begun is not None:
            self._tracker.take_file(*begun)

    def follow(self, events: list[Event]) -> None:
        """Apply the statements among the newest events to the schema history."""
        if self._decoder.renumbered:
            self._tracker.suspect(self._decoder.renumbered)
            self._decoder.renumbered.clear()
        count = self._decoder.table_statements
        if count == self._followed:
            return
        self._followed = count
        for event in events:
            if type(event) is QueryEvent:
                changes = self._tracker.follow(event)
                if changes:
                    self._changes[event.file, event.position] = changes

    def reach(self) -> None:
        """All events before the decoder's place have been followed."""
        tracker, file, position = self._tracker, self._decoder.file, self._decoder.position
        tracker.reach(file, position)
        if tracker.unseen and tracker.passes_unseen(file, position):
            self._decoder.forget_tables()

    def run(self, raws: Sequence[bytes], begin: int) -> Sequence[bytes]:
        """The raw events that may be decoded at once from number ``begin`` on: only one where names may change."""
        return raws[: begin + 1] if self._tracker.unseen else raws

    def gives(self, event: Event) -> bool:
        """Give a table map the names that the schema history has for its place. Returns whether it has them."""
        assert isinstance(event, TableMapEvent)
        table = self._tracker.named(event)
        if table is not None:
            event.table = self._decoder.name_table(event.table_id, table)
        return table is not None

    def partly(self, event: TableMapEvent) -> Table:
        """A table that the source does not show, with the names that the schema history knows for its place."""
        return self._tracker.partly_named(event)

    def with_changes(self, batch: Batch) -> Batch:
        """The batch with a ``SchemaChangeEvent`` behind each statement that has changed a wanted table."""
        if not self._changes:
            return batch
        events: list[Event] = []
        raws: list[bytes] = []
        for event, raw in zip(batch.events, batch.raws, strict=True):
            events.append(event)
            raws.append(raw)
            if type(event) is QueryEvent:
                changes = self._changes.pop((event.file, event.position), [])
                events += changes
                raws += [b""] * len(changes)
        self._changes.clear()
        return Batch(events, raws, batch.end, batch.inner)
