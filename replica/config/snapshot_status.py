"""``SnapshotStatus``, the value of ``stream.status.snapshot``: how far the initial copy of tables has come."""

from collections.abc import Mapping

from protocol.records import record


@record(frozen=True, slots=True, kw_only=True)
class SnapshotStatus:
    """How far the initial copy has come.

    ``tables`` are to be copied, ``tables_complete`` of them are complete. ``rows`` were delivered, of an ``estimate``
    by the source's statistics. ``seconds_left`` is an estimate by the speed so far; None if it is not known.
    ``chunks`` were delivered, and the log had changed rows of ``chunks_corrected`` of them meanwhile. ``complete``:
    all copies are complete. ``keys`` has, by schema and name, the columns of the key by which each table is copied:
    its primary key, else a unique key without NULL, else none.
    """

    tables: int
    tables_complete: int
    rows: int
    estimate: int
    seconds_left: float | None
    chunks: int
    chunks_corrected: int
    complete: bool
    keys: Mapping[tuple[str, str], tuple[str, ...]]
