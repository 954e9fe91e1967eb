"""Arguments of a wrong type, to all that users make by hand: an error of the library that shows what was given."""

from __future__ import annotations

import pickle
import pydoc
import re
from collections.abc import Callable
from typing import Any

import pytest

import replica
import replica.sync
from tests.support.places import ROOT

DSN = "mysql://repl@127.0.0.1"
LOG = ROOT / "replica" / "demo" / "shop.binlog"


def _arrow_of_file(**given: Any) -> None:
    with replica.open_binlog(LOG) as log:
        log.arrow(**{"table": "shop.orders"} | given)


def _arrow_of_stream(**given: Any) -> None:
    replica.connect(DSN).arrow(**{"table": "shop.orders"} | given)


MAKERS: dict[str, Callable[[Any], object]] = {
    "FileCheckpointStore": replica.FileCheckpointStore,
    "FileSchemaStore": replica.FileSchemaStore,
    "Checkpoint.from_dict": replica.Checkpoint.from_dict,
    "GtidSet": replica.GtidSet,
    "GtidSet of several": lambda value: replica.GtidSet([value]),
    "MariadbGtidSet": replica.MariadbGtidSet,
    "MariadbGtidSet of several": lambda value: replica.MariadbGtidSet([value]),
    "Gtid.parse": replica.Gtid.parse,
    "MariadbGtid.parse": replica.MariadbGtid.parse,
    "BinlogPosition.parse": replica.BinlogPosition.parse,
    "BinlogPosition, file": lambda value: replica.BinlogPosition(value, 4),
    "BinlogPosition, position": lambda value: replica.BinlogPosition("binlog.000001", value),
    "ReconnectPolicy, initial": lambda value: replica.ReconnectPolicy(initial=value),
    "ReconnectPolicy, attempts": lambda value: replica.ReconnectPolicy(attempts=value),
    "arrow of a file, columns": lambda value: _arrow_of_file(columns=value),
    "arrow of a stream, columns": lambda value: _arrow_of_stream(columns=value),
    "arrow, several columns": lambda value: _arrow_of_file(columns=[value]),
    "arrow, metadata": lambda value: _arrow_of_file(metadata=value),
    "arrow, batch_rows": lambda value: _arrow_of_file(batch_rows=value),
    "arrow, table": lambda value: _arrow_of_file(table=value),
    "open_binlog, schemas": lambda value: replica.open_binlog(LOG, schemas=value),
}
#: What is a value of that argument, or stands for none.
FITTING: dict[str, set[object]] = {
    "FileCheckpointStore": {"text"},
    "FileSchemaStore": {"text"},
    "BinlogPosition, file": {"text"},
    "ReconnectPolicy, initial": {2.5},
    "ReconnectPolicy, attempts": {None},
    "arrow, several columns": {"text"},
}
MAY_BE_NONE = {
    "arrow of a file, columns",
    "arrow of a stream, columns",
    "arrow, metadata",
    "open_binlog, schemas",
}


@pytest.mark.parametrize("value", [None, b"bytes", 2.5, "text", object], ids=repr)
@pytest.mark.parametrize("name", MAKERS)
def test_it_is_told_what_was_given(name: str, value: object) -> None:
    pytest.importorskip("pyarrow")
    if value in FITTING.get(name, ()) or (value is None and name in MAY_BE_NONE):
        MAKERS[name](value)
        return
    with pytest.raises(replica.ConfigurationError, match=re.escape(repr(value))):
        MAKERS[name](value)


@pytest.mark.parametrize("path", ["", "a\0b"])
@pytest.mark.parametrize("store", [replica.FileCheckpointStore, replica.FileSchemaStore])
def test_a_path_of_no_file(store: Callable[[str], object], path: str) -> None:
    with pytest.raises(replica.ConfigurationError, match="the path of a file"):
        store(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file", None),
        ("position", "154"),
        ("gtid_set", 5),
        ("server_uuid", 5),
        ("server_id", "97"),
        ("snapshot", 1),
    ],
)
async def test_a_checkpoint_that_was_made_by_hand(key: str, value: object) -> None:
    """Another server seemed to answer (SourceChangedError), or an AttributeError came up as the stream was opened."""
    values: dict[str, Any] = {"file": "binlog.000001", "position": 4, key: value}
    checkpoint = replica.Checkpoint(**values)

    class Store:
        def load(self) -> replica.Checkpoint:
            return checkpoint

        def save(self, checkpoint: replica.Checkpoint) -> None:
            """Nothing is saved."""

    message = f"a checkpoint's {key} must be .*, not {re.escape(repr(value))}"
    with pytest.raises(replica.ConfigurationError, match=f"^start: {message}"):
        replica.connect(DSN, start=checkpoint)
    with pytest.raises(replica.ConfigurationError, match=f"^start: {message}"):
        replica.open_binlog(LOG, start=checkpoint)
    with pytest.raises(replica.CheckpointError, match=message):
        await replica.connect(DSN, checkpoints=Store()).__aenter__()


@pytest.mark.parametrize("key", [5, None])
def test_a_key_of_a_checkpoint_that_is_no_text(key: object) -> None:
    """It was a TypeError."""
    values: dict[Any, object] = {**replica.Checkpoint("binlog.000001", 4).to_dict(), "x": 1, key: 1}
    with pytest.raises(replica.ConfigurationError, match=f"no {key}, x of a checkpoint"):
        replica.Checkpoint.from_dict(values)


@pytest.mark.parametrize("start", ["Snapshot", "snapshots"])
def test_a_wrong_start_is_told_the_word_for_a_copy(start: str) -> None:
    with pytest.raises(replica.ConfigurationError, match=r"start: .*\bsnapshot\b.* copies the tables"):
        replica.connect(DSN, start=start)


def test_a_number_for_reconnect_is_told_the_policy() -> None:
    with pytest.raises(
        replica.ConfigurationError, match=r"reconnect: .*ReconnectPolicy\(attempts=5\).*, not 3"
    ):
        replica.connect(DSN, reconnect=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        replica.ServerError(1045, "28000", "Access denied"),
        replica.MissingExtraError("x", "arrow"),
        replica.DecodeError("torn", "binlog.000001", 4),
        replica.RolledBackToSavepointError("rolled back", 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_notes_of_an_error_survive_pickling(error: replica.ReplicaError) -> None:
    error.add_note("while job 7 ran")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), copied.__notes__) == (type(error), str(error), ["while job 7 ran"])


def test_help_of_the_synchronous_connect_names_its_stream() -> None:
    text = pydoc.plain(pydoc.render_doc(replica.sync.connect))
    assert "BinlogStream" not in text.partition("\n\n    ")[0]
    # Python 3.14 prints it without quotes.
    assert ") -> SyncStream" in text.replace("'", "")
    assert pickle.loads(pickle.dumps(replica.sync.connect)) is replica.sync.connect
