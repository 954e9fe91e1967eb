"""``Grouping``: how a stream is iterated, by events and transactions or by batches of transactions."""

from collections.abc import Awaitable, Callable

from protocol.binlog.events import Event
from protocol.errors import ConfigurationError
from protocol.position import Checkpoint

from ..config.options import Options
from ..transactions.transaction import Transactions
from .change_batches import Batches, StreamPlace, check_limits


class Grouping:
    """The transactions and batches of one stream, as far as the user has asked for them.

    ``next_event`` returns the stream's next event.
    """

    def __init__(
        self, options: Options, next_event: Callable[[], Awaitable[Event]], place: StreamPlace
    ) -> None:
        self._options = options
        self._next_event = next_event
        self._place = place
        #: None until transactions or batches are asked for.
        self.transactions: Transactions | None = None
        self.batches: Batches | None = None
        self._is_grouping = False

    @property
    def held(self) -> Checkpoint | None:
        """The stream's checkpoint while a batch is not done; None: that of the stream's events."""
        return None if self.batches is None else self.batches.held

    def by_transactions(self) -> Transactions:
        """What ``stream.transactions()`` returns."""
        self.check_without_batches()
        return self.transactions or self._group_all("transactions()")

    def by_batches(self, max_rows: int, max_seconds: float | None) -> Batches:
        """What ``stream.batches()`` returns."""
        if self.batches is None:
            if self.transactions is not None:
                raise RuntimeError("a stream gives batches or transactions, not both: connect another stream")
            check_limits(max_rows, max_seconds)
            self.batches = Batches(self._group_all("batches()"), self._place)
        self.batches.limit(max_rows, max_seconds)
        return self.batches

    def check_without_batches(self) -> None:
        """Raise ``RuntimeError`` if the stream gives batches."""
        if self.batches is not None:
            raise RuntimeError("a stream that gives batches is iterated by batches() alone")

    def follow(self, event: Event) -> Event:
        """Show an event to the transactions, unless they asked for it themselves."""
        if self.transactions is not None and not self._is_grouping:
            self.transactions.follow(event)
        return event

    def _group_all(self, name: str) -> Transactions:
        if Event not in self._options.events:
            raise ConfigurationError(f"{name} needs all events: leave out events=")
        self.transactions = Transactions(self._next_to_group, self._place.behind)
        return self.transactions

    async def _next_to_group(self) -> Event:
        self._is_grouping = True
        try:
            return await self._next_event()
        finally:
            self._is_grouping = False
