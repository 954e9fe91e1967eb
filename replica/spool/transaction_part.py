"""A part of a large transaction, and the facts that all changes of a transaction share.

Some facts come last in the log: the XID, the outcome, rollbacks to savepoints. A task that reads one part of a
transaction gets them from the process that cut the transaction (``replica.spark.cut_inside``). All are plain values,
which can be pickled.
"""

from typing import Literal

from protocol.records import record

from ..transactions.units import Outcome


@record(frozen=True, slots=True)
class TransactionFacts:
    """The facts that all changes of a transaction share.

    ``ts`` is the commit time in microseconds since 1970, ``xid`` the storage engine's number of the transaction,
    ``xa`` the id of an XA transaction (``"X'6162',X'',1"``). ``outcome`` is ``"commit"``, ``"rollback"`` (of the
    transaction, or to a savepoint before the change), ``"prepared"``, or ``"open"`` if the log ends within the
    transaction.
    """

    gtid: str | None = None
    ts: int = 0
    xid: int | None = None
    xa: str | None = None
    outcome: Outcome | Literal["open"] = "open"


@record(frozen=True, slots=True)
class TransactionPart:
    """The facts for reading a piece that begins or ends within a transaction.

    ``prelude`` has events from before the piece, as pairs of position and bytes: the beginning of the transaction,
    and the table maps of the open statement. ``rows_events`` counts the transaction's rows events before the piece.
    ``undone`` has the numbers of those rows events of the transaction that a rollback to a savepoint undid.
    """

    prelude: tuple[tuple[int, bytes], ...]
    facts: TransactionFacts
    undone: tuple[range, ...] = ()
    rows_events: int = 0
