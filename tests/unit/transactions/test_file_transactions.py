"""Transactions of files: each is complete and has a checkpoint; every row of real logs is in exactly one."""

from __future__ import annotations

import contextlib
import gc
import io
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from protocol.binlog.events import DeleteRowsEvent, Event, UpdateRowsEvent, WriteRowsEvent
from protocol.errors import (
    ConfigurationError,
    DecodeError,
    LostEventsError,
    RolledBackToSavepointError,
    StatementFormatError,
    TransactionOutcomeError,
    UnsupportedEventError,
)
from protocol.gtid import Gtid, GtidSet
from protocol.position import Checkpoint
from replica.files.binlog_file import BinlogFile, open_binlog
from replica.transactions.transaction import FileTransaction
from tests.support.log_builder import NOON, SOURCE_ID, LogBuilder, numbered_log, write_logs
from tests.support.places import CORPUS, corpus_index


def log_of(builder: LogBuilder, **options: Any) -> BinlogFile:
    return open_binlog(io.BytesIO(builder.data), **options)


def numbers(log: BinlogFile) -> list[list[object]]:
    with log:
        return [[change.after["@1"] for change in tx if change.after] for tx in log.transactions()]


def test_each_transaction_with_all_that_is_known_of_it() -> None:
    with log_of(numbered_log(3)) as log:
        for number, tx in zip((1, 2, 3), log.transactions(), strict=True):
            assert tx.gtid == Gtid(SOURCE_ID, number)
            assert tx.commit_time == NOON.replace(minute=number)
            assert (tx.outcome, tx.xid, tx.ddl, tx.is_restart) == (None, None, (), False)
            with pytest.raises(RuntimeError, match="at its end"):
                _ = tx.checkpoint
            assert [(change.op, change.after) for change in tx.collect()] == [("insert", {"@1": number})]
            assert tx.outcome == "commit"
            assert repr(tx) == f"<FileTransaction {SOURCE_ID}:{number}: commit>"


def test_a_file_that_ends_inside_a_transaction() -> None:
    """As that of a running server does. Its reader was told to iterate the transaction, which it had done."""
    builder = numbered_log(2)
    with open_binlog(io.BytesIO(builder.data[: builder.offsets[-1]])) as log:
        first, cut = (tx for tx in log.transactions() if [*tx])
        assert (first.outcome, cut.outcome) == ("commit", None)
        with pytest.raises(TransactionOutcomeError, match=f"^the files end inside transaction {SOURCE_ID}:2"):
            _ = cut.checkpoint


@pytest.mark.parametrize("gtids", [True, False])
def test_leaving_moving_on_and_going_on(gtids: bool) -> None:
    builder = LogBuilder()
    for first in (10, 20, 30):
        builder.transaction([first, first + 1, first + 2], sequence=first if gtids else None)
    with log_of(builder) as log:
        seen = []
        for tx in log.transactions():
            seen.append(next(tx).after)
            break
        seen.append(next(tx).after)
        for tx in log.transactions():
            events = [type(event).__name__ for event in tx.events()]
            assert events == ["GtidEvent"] * gtids + [
                "QueryEvent",
                "TableMapEvent",
                "WriteRowsEvent",
                "XidEvent",
            ]
            with pytest.raises(RuntimeError, match="has already begun"):
                tx.collect()
            break
        seen += [change.after for tx in log.transactions() for change in tx]
    assert seen == [{"@1": value} for value in (10, 11, 30, 31, 32)]


@pytest.mark.parametrize("held", [True, False])
def test_iterating_goes_on_behind_an_error(held: bool) -> None:
    """Also with the iterator that has raised: the rows behind would be lost in silence."""
    builder = LogBuilder()
    builder.statement("BEGIN")
    builder.rows([1, 2])
    builder.statement("SAVEPOINT `a`")
    builder.rows([3, 4])
    builder.statement("ROLLBACK TO `a`")
    builder.rows([5, 6, 7, 8, 9])
    builder.statement("COMMIT")
    with log_of(builder) as log:
        tx = next(log.transactions())
        iterator, seen = iter(tx), list[object]()
        while True:
            try:
                change = next(iterator if held else iter(tx), None)
            except RolledBackToSavepointError as error:
                del seen[error.changes_kept :]
                continue
            if change is None:
                break
            assert change.after is not None
            seen.append(change.after["@1"])
    assert seen == [1, 2, 5, 6, 7, 8, 9]


def test_a_change_calls_no_function_of_its_own() -> None:
    """Neither does a rows event of many rows call one for each."""
    calls = list[int]()
    for count in (100, 1000):
        builder = LogBuilder()
        builder.transaction(list(range(count)))
        with log_of(builder) as log:
            tx = next(log.transactions())
            called = 0

            def note(frame: FrameType, event: str, _: object) -> None:
                nonlocal called
                called += event == "call" and frame.f_code.co_name != "__init__"

            # Hooks of the garbage collector would be counted, too.
            gc.disable()
            sys.setprofile(note)
            try:
                changes = list(tx)
            finally:
                sys.setprofile(None)
                gc.enable()
            assert len(changes) == count
            calls.append(called)
    # The file is read in blocks.
    assert calls[1] - calls[0] < 50


def test_statements_and_the_end_of_the_file() -> None:
    builder = numbered_log(1)
    builder.statement("CREATE TABLE t (a INT)")
    builder.statement("INSERT INTO t VALUES (1)")
    builder.statement("BEGIN")
    with log_of(builder) as log:
        found = list(log.transactions())
        assert [len(tx.ddl) for tx in found] == [0, 1, 0, 0]
    with log_of(builder) as log:
        transactions = log.transactions()
        assert [len(next(transactions).collect()) for _ in range(2)] == [1, 0]
        with pytest.raises(StatementFormatError):
            next(transactions).collect()
        with pytest.raises(TransactionOutcomeError, match="not been read to its end"):
            next(transactions).collect()
        assert list(transactions) == []


@pytest.mark.parametrize("with_gtids", [True, False])
def test_a_checkpoint_is_where_to_go_on(tmp_path: Path, with_gtids: bool) -> None:
    paths = write_logs(tmp_path)
    found = []
    with open_binlog(paths) as log:
        for tx in log.transactions():
            found.append(([change.after for change in tx], tx.checkpoint))
    assert [rows for rows, _ in found] == [[{"@1": number}] for number in range(1, 7)]
    for number, (_, checkpoint) in enumerate(found, 1):
        # These files do not list the GTIDs before them.
        assert checkpoint.gtid_set is None
        if with_gtids:
            checkpoint = Checkpoint(checkpoint.file, 0, f"{SOURCE_ID}:1-{number}")
        assert numbers(open_binlog(paths, start=checkpoint)) == [[later] for later in range(number + 1, 7)]


def test_compressed_transactions_begin_and_end_where_they_do() -> None:
    """For start, stop and checkpoints a compressed transaction ends with its last inner event, not its envelope."""
    builder = LogBuilder()
    for number in range(1, 6):
        builder.compressed_transaction([number, 10 * number], sequence=number)
    whole = [[number, 10 * number] for number in range(1, 6)]
    with log_of(builder) as log:
        checkpoints = [tx.checkpoint for tx in log.transactions() if tx.collect()]
    assert [checkpoint.position for checkpoint in checkpoints] == builder.ends[2::2]
    assert numbers(log_of(builder)) == whole
    for count, checkpoint in enumerate(checkpoints, 1):
        gtid_set = GtidSet(f"{SOURCE_ID}:1-{count}")
        assert numbers(log_of(builder, start=gtid_set)) == whole[count:]
        assert numbers(log_of(builder, stop=gtid_set)) == whole[:count]
        assert numbers(log_of(builder, start=checkpoint.position)) == whole[count:]
        assert numbers(log_of(builder, stop=checkpoint.position)) == whole[:count]


def test_damage_is_raised_and_raised_again() -> None:
    builder = numbered_log(3)
    builder.data[builder.offsets[9] + 25] ^= 1
    with log_of(builder) as log:
        transactions = log.transactions()
        assert len(next(transactions).collect()) == 1
        tx = next(transactions)
        for _ in range(2):
            with pytest.raises(DecodeError):
                tx.collect()
        for _ in range(2):
            with pytest.raises(DecodeError):
                next(transactions)


@pytest.mark.parametrize("options", [{"events": WriteRowsEvent}, {"on_error": "skip"}])
def test_transactions_are_whole(options: dict[str, Any]) -> None:
    with (
        log_of(numbered_log(1), **options) as log,
        pytest.raises(ConfigurationError, match="needs all events"),
    ):
        log.transactions()


# Real files


def open_corpus(record: dict[str, Any]) -> BinlogFile:
    has_stale_checksums = any("crc bad" in note for note in record["walk_notes"])
    return open_binlog(CORPUS / record["file"], verify_checksum=not has_stale_checksums, keyring=bytes(32))


def rows_of(event: Event) -> int:
    return len(event.rows) if isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent) else 0


def count_changes(tx: FileTransaction, found: dict[str, int]) -> int:
    """The changes that stand and those that were rolled back; iteration continues after each error."""
    count = 0
    while True:
        try:
            for _ in tx:
                count += 1
        except StatementFormatError:
            found["statements"] += 1
        except RolledBackToSavepointError:
            found["savepoints"] += 1
        except UnsupportedEventError as error:
            if error.reason != "rows in the format of the MySQL 5.1 development versions cannot be read":
                raise
        else:
            return count


@pytest.mark.thorough
@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
def test_every_row_of_real_logs_is_in_a_transaction() -> None:
    found = dict.fromkeys(("transactions", "rows", "statements", "savepoints", "incidents", "open", "ddl"), 0)
    for record in corpus_index():
        expected, seen = 0, 0
        with open_corpus(record) as log, contextlib.suppress(DecodeError):
            for event in log:
                expected += rows_of(event)
        with open_corpus(record) as log, contextlib.suppress(DecodeError):
            transactions = log.transactions()
            while True:
                try:
                    tx = next(transactions)
                except LostEventsError:
                    found["incidents"] += 1
                    continue
                except StopIteration:
                    break
                seen += count_changes(tx, found)
                found["transactions"] += 1
                found["open"] += tx.outcome is None
                found["ddl"] += len(tx.ddl)
                if tx.outcome is not None:
                    assert tx.checkpoint.position <= (CORPUS / record["file"]).stat().st_size
        assert seen == expected, record["file"]
        found["rows"] += seen
    print(found)
    assert found["rows"] > 1000
    assert all(found[kind] for kind in ("statements", "incidents", "open", "ddl")), found
