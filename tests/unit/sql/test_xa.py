"""The ids of XA transactions, as text and from statements of the log."""

from __future__ import annotations

import pickle

import pytest

import replica
from replica.sql.xa import Xid, ends_prepared, prepare_statement, statement_xid

XID = Xid(7, b"ab", b"")


def test_the_text_of_an_id() -> None:
    assert str(XID) == "X'6162',X'',7"
    assert prepare_statement(XID, False) == "XA PREPARE X'6162',X'',7"
    assert prepare_statement(XID, True) == "XA COMMIT X'6162',X'',7 ONE PHASE"


@pytest.mark.parametrize(
    ("sql", "xid"),
    [
        ("XA START X'6162',X'',7", XID),
        ("XA COMMIT X'6162',X'',7", XID),
        ("XA ROLLBACK X'6162',x'',7", XID),
        ("XA COMMIT X'4D',X'4e',1", Xid(1, b"M", b"N")),
        ("XA END X'6162',X'',7", None),
        ("XA COMMIT 'ab'", None),
        # No server logs these: each was a ValueError of the stream.
        ("XA COMMIT X'4',X'',1", None),
        ("XA COMMIT X'',X'414',1", None),
        ("XA COMMIT X'',X''," + "9" * 5000, None),
        ("COMMIT", None),
    ],
)
def test_the_id_in_a_statement(sql: str, xid: Xid | None) -> None:
    assert statement_xid(sql) == xid


def test_ends_of_prepared_transactions() -> None:
    assert ends_prepared("XA COMMIT X'',X'',1")
    assert ends_prepared("XA ROLLBACK X'',X'',1")
    assert not ends_prepared("XA END X'',X'',1")


def test_the_id_is_public() -> None:
    assert replica.Xid is Xid
    assert pickle.loads(pickle.dumps(XID)) == XID
