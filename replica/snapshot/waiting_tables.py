"""Log records about tables whose copies do not come to their end, and what the user can do."""

import logging
from typing import Final

from protocol.errors import ReplicaError

from ..config.log_facts import log_facts
from ..config.steady_time import steady_time
from ..sql.quoting import first_names
from .snapshot_copy import SnapshotCopy
from .table_copy import TableCopy
from .transaction_touches import TableId

_LOGGER: Final = logging.getLogger(__name__)
# A table without a key that was read so often may never come to its end. One that writers leave alone is read once.
_MANY_TIMES: Final = 20
#: Transactions that are prepared are mostly committed within so many seconds.
PATIENCE: Final = 10.0


class WaitingTables:
    """Tells of each such table once."""

    def __init__(self) -> None:
        self._told: set[TableId] = set()
        # Since when tables wait for XA transactions alone.
        self._since: dict[TableId, float] = {}

    def tell(self, copy: SnapshotCopy, source: str) -> None:
        """Look at the tables whose copies are not complete. ``source`` is its address."""
        for identity, table in copy.unfinished:
            if identity in self._told:
                continue
            xids = _awaited(copy, identity, table)
            since = (
                self._since.setdefault(identity, steady_time()) if xids else self._since.pop(identity, 0.0)
            )
            name, rows, times = ".".join(identity), table.awaits_file, table.counts.anew
            if rows:
                self._told.add(identity)
                _LOGGER.warning(
                    "%s: the log does not tell all columns of %d changed rows (binlog_row_image, partial JSON). They "
                    "are read when they change again, or when the source begins a new log file (FLUSH BINARY LOGS). "
                    "With snapshot_locking='rows' they need not wait",
                    name,
                    rows,
                    extra=log_facts("copy-waits", source=source, table=name, rows=rows),
                )
            elif times >= _MANY_TIMES and not table.key.names:
                self._told.add(identity)
                _LOGGER.warning(
                    "%s: it has no key, and was read %d times: transactions changed it during each read, or XA "
                    "transactions that were prepared before were committed behind it. Its copy ends when writers "
                    "leave it alone for a moment, with no XA transaction on it prepared (XA RECOVER); or give it a "
                    "primary key",
                    name,
                    times,
                    extra=log_facts("copy-restarts", source=source, table=name, times=times),
                )
            elif xids and steady_time() - since >= PATIENCE:
                self._told.add(identity)
                _LOGGER.warning(
                    "%s: it has no key, and its copy waits for the end of XA transactions that are prepared. XA "
                    "COMMIT or XA ROLLBACK ends them: %s",
                    name,
                    first_names(xids),
                    extra=log_facts("copy-awaits-xa", source=source, table=name, xids=first_names(xids)),
                )


def tell_again(error: ReplicaError, table: TableId, source: str, level: int) -> None:
    """Tell that a chunk is read again."""
    facts = log_facts("read-again", source=source, table=".".join(table), error=error)
    _LOGGER.log(level, "reading %s.%s: %s -- trying again", *table, error, extra=facts)


def _awaited(copy: SnapshotCopy, identity: TableId, table: TableCopy) -> list[str]:
    """The prepared XA transactions that a table without a key waits for; none if it has something else to do."""
    if table.key.names or table.is_dropped:
        return []
    prepared = copy.touches.prepared.items()
    if table.progress.is_void:
        return [str(xid) for xid, touching in prepared if identity in touching.handed]
    return [str(xid) for xid, touching in prepared if table.is_complete() and touching.misses(identity)]
