"""Filters of replication and of the log, against the tables that a stream selects."""

from __future__ import annotations

import pytest

from protocol.errors import ServerError
from protocol.records import replace
from replica.config.selection import Selection
from replica.source.left_out import Filters, Replication, left_out, replication_of
from tests.support.source_facts import MYSQL97


@pytest.mark.parametrize(
    ("filters", "tables", "exclude", "found"),
    [
        ({"replicate_do_db": "shop,crm"}, "shop.*,crm.user", "", []),
        ({"replicate_do_db": "shop"}, "shop.*,crm.user", "", ["replicate_do_db=shop"]),
        ({"replicate_do_db": "shop"}, "s*.orders", "", ["replicate_do_db=shop"]),
        ({"replicate_do_db": "shop"}, "*", "", ["replicate_do_db=shop"]),
        ({"replicate_ignore_db": "test,shop"}, "shop.*", "", ["replicate_ignore_db=shop"]),
        ({"replicate_ignore_db": "test"}, "*", "", ["replicate_ignore_db=test"]),
        ({"replicate_ignore_db": "test"}, "*", "test.*", []),
        ({"replicate_ignore_db": "mysql", "replicate_ignore_table": "innodb_memcache.a"}, "*", "", []),
        ({"replicate_ignore_table": "mysql.user"}, "mysql.*", "", ["replicate_ignore_table=mysql.user"]),
        ({"replicate_ignore_table": "shop.a,shop.b"}, "shop.*", "shop.b", ["replicate_ignore_table=shop.a"]),
        ({"replicate_ignore_table": "shop.a"}, "shop.b", "", []),
        ({"replicate_wild_ignore_table": r"shop.x\_%,mysql.%"}, "shop.*", r"shop.x_*", []),
        ({"replicate_wild_ignore_table": "shop.x%"}, "shop.*", "", ["replicate_wild_ignore_table=shop.x%"]),
        ({"replicate_wild_ignore_table": "shop.x%"}, "shop.orders", "", []),
        (
            {"replicate_wild_ignore_table": "sh_p.orders"},
            "shop.o*",
            "",
            ["replicate_wild_ignore_table=sh_p.orders"],
        ),
        ({"replicate_do_table": "shop.a", "replicate_wild_do_table": "crm.%"}, "shop.a,crm.*", "", []),
        ({"replicate_do_table": "shop.a"}, "shop.*", "", ["replicate_do_table=shop.a"]),
        ({"replicate_wild_do_table": "shop.o%"}, "shop.orders", "", []),
        ({"replicate_wild_do_table": "shop.o%"}, "shop.*", "", ["replicate_wild_do_table=shop.o%"]),
        ({"replicate_rewrite_db": "(crm,x),(shop,y)"}, "shop.*", "", ["replicate_rewrite_db=shop->y"]),
        ({"replicate_rewrite_db": "crm->x,shop->y"}, "shop.*", "", ["replicate_rewrite_db=shop->y"]),
        # MariaDB 10.6 has the number of tries in its place.
        ({"replicate_rewrite_db": "10"}, "*", "", []),
        ({"replicate_do_domain_ids": "7", "replicate_ignore_domain_ids": "8, 9"}, "*", "", []),
        ({"replicate_do_db": "", "replicate_ignore_table": ""}, "*", "", []),
    ],
)
def test_filters(filters: Filters, tables: str, exclude: str, found: list[str]) -> None:
    selection = Selection(
        tables=tuple(tables.split(",")), exclude_tables=tuple(filter(None, exclude.split(",")))
    )
    assert left_out(filters, selection) == found


def test_mariadb_tells_a_user_who_may_not_see_the_status() -> None:
    source, refused = replace(MYSQL97, is_mariadb=True), ServerError(1227, "42000", "no")
    variables = [("replicate_ignore_table", "shop.audit"), ("replicate_events_marked_for_skip", "REPLICATE")]
    found = replication_of([refused, [("Slaves_running", "1")], variables], source)
    assert found.is_replica
    assert found.hides
    [channel] = found.channels
    assert left_out(channel.filters, Selection(tables=("shop.*",))) == ["replicate_ignore_table=shop.audit"]
    assert replication_of([refused, [("Slaves_running", "0")], variables], source) == Replication(None)
    assert replication_of([refused], MYSQL97) == Replication(None)
