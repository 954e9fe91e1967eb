"""What a copy makes of the server's refusals."""

import pytest

from protocol.errors import PrivilegeError, SchemaMismatchError, ServerError
from replica.config.options import Options
from replica.config.reconnect import FailureCount
from replica.snapshot.copier import Copier
from replica.snapshot.marks import LOWEST
from replica.snapshot.snapshot_copy import SnapshotCopy


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
