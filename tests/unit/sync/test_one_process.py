"""What holds a connection is refused by ``pickle`` and ``copy``, with what to send to another process instead."""

from __future__ import annotations

import copy
import pickle

import pytest

import replica
import replica.sync
from tests.support.grouped_events import ListStream, changes_of, transaction


async def test_a_transaction_and_its_changes() -> None:
    tx = await anext(ListStream(transaction(1, 10)).transactions())
    for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"a Transaction cannot be pickled or copied: .*its changes"):
            refuse(tx)
    assert await changes_of(tx) == [10]
    assert pickle.loads(pickle.dumps(tx.checkpoint)) == tx.checkpoint


@pytest.mark.parametrize("connect", [replica.connect, replica.sync.connect])
def test_a_stream(connect: type) -> None:
    stream = connect("mysql://repl@127.0.0.1:1")
    with pytest.raises(TypeError, match="Stream cannot be pickled or copied: each process connects"):
        pickle.dumps(stream)
