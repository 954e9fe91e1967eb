"""``SnapshotStatus``, the value of ``stream.status.snapshot``: how far the initial copy of tables has come."""

from protocol.records import record


@record(frozen=True, slots=True, kw_only=True)
class SnapshotStatus:
    """How far the initial copy has come.

    ``tables`` are to be copied, ``tables_complete`` of them are complete. ``rows`` were delivered, of an ``estimate``
    by the source's statistics. ``seconds_left`` is an estimate by the speed so far; None if it is not known.
    ``chunks`` were delivered, and the log had changed rows of ``chunks_corrected`` of them meanwhile. ``complete``:
    all copies are complete.
    """

    tables: int
    tables_complete: int
    rows: int
    estimate: int
    seconds_left: float | None
    chunks: int
    chunks_corrected: int
    complete: bool
