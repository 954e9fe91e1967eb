"""A member of a group that lags behind, as a user sees it who may not read performance_schema."""

from __future__ import annotations

import contextlib

import pytest

from protocol.errors import ConnectionLostError
from protocol.gtid import GtidSet
from replica.config.options import Options
from replica.source.lagging_replica import check_lag
from replica.source.server_facts import ask
from replica.source.session import Session
from tests.support.socket_source import MYSQL_VARIABLES, SocketSource, serving

GROUP = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
VIEWS = "aaaaaaaa-bbbb-cccc-dddd-ffffffffffff"
OTHER = "aaaaaaaa-bbbb-cccc-dddd-000000000000"


@pytest.mark.parametrize(
    ("lacking", "is_coming"),
    [(f"{GROUP}:3-9:tag:1", True), (f"{GROUP}:3,{VIEWS}:1", True), (f"{GROUP}:3,{OTHER}:1", False)],
)
async def test_transactions_of_the_group_will_come(lacking: str, is_coming: bool) -> None:
    named = {"group_replication_group_name": GROUP.upper(), "group_replication_view_change_uuid": VIEWS}
    source = SocketSource(variables=MYSQL_VARIABLES | named)
    async with serving(source):
        session = await Session.open(Options.build(source.dsn, {}))
        facts = await ask(session)
        expected = pytest.raises(ConnectionLostError) if is_coming else contextlib.nullcontext()
        with expected:
            await check_lag(GtidSet(lacking), session, facts)
        await session.aclose()
