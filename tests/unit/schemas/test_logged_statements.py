"""The session of a logged statement, as the status variables of its event tell it."""

from __future__ import annotations

import struct

import pytest

from protocol.constants import SessionFlag
from replica.schemas.logged_statements import LogTraits, statement_of
from tests.support.rendered_events import query


@pytest.mark.parametrize("is_set", [True, False])
@pytest.mark.parametrize(
    ("version", "is_logged"),
    [((10, 3, 39), False), ((10, 6, 8), False), ((10, 6, 9), True), ((10, 11, 18), True), ((11, 8), True)],
)
def test_whether_timestamps_of_mariadb_are_explicit(
    version: tuple[int, ...], *, is_logged: bool, is_set: bool
) -> None:
    """Each session says it in the log of 10.6.9 and later; the global value was taken for it before 10.11."""
    event = query("CREATE TABLE t (a TIMESTAMP)")
    event.status_variables = struct.pack("<BI", 0, SessionFlag.MARIADB_EXPLICIT_DEF_TIMESTAMP * is_set)
    for of_server in (True, False):
        statement = statement_of(event, LogTraits(True, version, explicit_timestamps=of_server))
        assert statement.dialect.explicit_timestamps == (is_set if is_logged else of_server)
