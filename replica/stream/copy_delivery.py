"""``CopyDelivery``: puts the chunks of an initial copy between batches of the log. Pure: it reads nothing."""

from ..snapshot.marks import Place
from .batch import Account, Batch


class CopyDelivery:
    """The copy of one stream, as its delivery sees it: which chunk comes next, and whether the stop has to wait."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._was_running = False

    @property
    def is_running(self) -> bool:
        """Whether tables are being copied. The stream's stop waits for the end of that."""
        return self._account.copy is not None and self._account.copy.is_active

    def next_batch(self) -> Batch | None:
        """A chunk that is due, now that the user is done with all events before; None without one."""
        copy = self._account.copy
        if copy is None:
            return None
        progress = self._account.progress
        if progress.in_transaction:
            return None
        self._was_running = self._was_running or copy.is_active
        event = copy.deliver(Place(progress.file, progress.position, progress.gtid_set))
        return None if event is None else Batch([event], [b""], (progress.file, progress.position))

    def takes_end(self) -> bool:
        """Whether the copy has ended since the last call."""
        if not self._was_running or self.is_running:
            return False
        self._was_running = False
        return True

    def last_boundary(self, batch: Batch) -> int:
        """The number of events before the last place in the batch at which a chunk could come."""
        copy = self._account.copy
        if copy is None or not copy.in_flight:
            return 0
        return self._account.progress_behind().follow_all(batch.events, batch.end)
