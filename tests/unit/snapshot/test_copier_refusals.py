"""What a copy makes of the server's refusals."""

from types import SimpleNamespace
from typing import cast

import pytest

from protocol.errors import PrivilegeError, SchemaMismatchError, ServerError
from replica.config.options import Options
from replica.config.reconnect import FailureCount
from replica.snapshot.copier import Copier
from replica.snapshot.marks import LOWEST
from replica.snapshot.read_plan import ReadPlan
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.transaction_touches import KeyColumns
from replica.source.session import Session


async def test_select_that_is_refused_in_the_midst_of_a_chunk() -> None:
    """Between the statement that names the table and the one that reads it."""
    copier = Copier(Options.build("mysql://u@h", {}), SnapshotCopy(), lambda: LOWEST)
    refusal = ServerError(1142, "42000", "SELECT command denied to user")
    with pytest.raises(PrivilegeError, match=r"GRANT SELECT ON s\.t"):
        await copier._after(refusal, ("s", "t"), FailureCount())


async def test_rows_that_contradict_their_table_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a proxy that has types of its own: 30 connections a second were made, without a word."""
    monkeypatch.setattr("replica.snapshot.copier._PAUSES", (0,))
    copier, failures = (
        Copier(Options.build("mysql://u@h", {}), SnapshotCopy(), lambda: LOWEST),
        FailureCount(),
    )
    mismatch = SchemaMismatchError("column 'a' of s.t was changed: its values come with the type 8")
    other = SchemaMismatchError("column 'a' of s.t was changed: its values come with the type 3")

    async def fail(*errors: SchemaMismatchError, times: int) -> None:
        for _ in range(times):
            for error in errors:
                await copier._after(error, ("s", "t"), failures)

    # Tables that are altered all the time.
    await fail(mismatch, other, times=60)
    copier._mismatches.clear()
    await fail(mismatch, times=60)
    with pytest.raises(SchemaMismatchError, match="its values come with the type 8"):
        await fail(mismatch, times=1)


async def test_a_table_that_is_altered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses each read so was asked 200 times a second, without a word."""
    monkeypatch.setattr("replica.snapshot.copier._PAUSES", (0,))
    copier = Copier(Options.build("mysql://u@h", {}), SnapshotCopy(), lambda: LOWEST)
    refusal = ServerError(1412, "HY000", "Table definition has changed, please retry transaction")
    for _ in range(60):
        await copier._after(refusal, ("s", "t"), FailureCount())
    with pytest.raises(ServerError, match="Table definition has changed"):
        await copier._after(refusal, ("s", "t"), FailureCount())


async def test_a_table_that_is_locked_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by LOCK TABLES, where lock_wait_timeout is short: it is waited for."""
    monkeypatch.setattr("replica.snapshot.copier._PAUSES", (0,))
    copier = Copier(Options.build("mysql://u@h", {}), SnapshotCopy(), lambda: LOWEST)
    refusal = ServerError(1205, "HY000", "Lock wait timeout exceeded; try restarting transaction")
    for _ in range(122):
        await copier._after(refusal, ("s", "t"), FailureCount())
    assert [vars(record)["event"] for record in caplog.records] == ["read-again"] * 2


async def test_reads_with_locks_that_meet_writers_wait_longer_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each deadlock had the chunk read again after 5 ms, which locked its rows again."""
    copy, pauses = SnapshotCopy(), list[float]()
    copier = Copier(Options.build("mysql://u@h", {"snapshot_locking": "rows"}), copy, lambda: LOWEST)
    copy.add(("s", "t"), KeyColumns(("id",), (0,)), LOWEST)
    [(table, window)] = copy.windows(LOWEST, 1)
    window.is_locking = True

    async def meet_writers(*given: object) -> None:
        if len(pauses) == 7:
            window.is_void = True
            return
        raise ServerError(1213, "40001", "Deadlock found when trying to get lock")

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def query(sql: str) -> None:
        assert sql == "ROLLBACK"

    monkeypatch.setattr(copier, "_steps", meet_writers)
    monkeypatch.setattr("replica.snapshot.copier.asyncio.sleep", pause)
    session = cast("Session", SimpleNamespace(query=query))
    await copier._read_alone(session, table, cast("ReadPlan", None), window)
    assert pauses == [0.005, 0.01, 0.02, 0.05, 0.1, 0.1, 0.1]
