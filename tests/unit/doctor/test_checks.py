"""The doctor's checks on made-up facts, also those that a test cannot cause on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from protocol.errors import ServerError
from replica.config.options import Options
from replica.doctor import Finding, Remedy, can_start, log_checks
from replica.doctor.checks import all_findings
from replica.doctor.connection_checks import check_clock, check_semi_sync, check_timeouts, check_tls
from replica.doctor.copy_checks import check_copy_log
from replica.doctor.facts import Facts, OtherReplica, SessionSetting, Statement
from replica.doctor.identity_checks import check_gtids, check_server_id
from replica.doctor.log_checks import (
    check_compression,
    check_filters,
    check_logged_updates,
    check_retention,
    check_sessions,
    check_statement,
)
from replica.doctor.privileges import (
    check_copy_privileges,
    check_replication_privilege,
    check_select_privilege,
)
from replica.doctor.settings import check_settings
from replica.doctor.table_checks import check_cascades, check_generated_columns, check_primary_keys
from replica.doctor.tables import Cascade, CopiedTable, KeylessTable, Tables
from replica.source.left_out import Channel, Replication
from replica.source.server_facts import Source
from tests.support.source_facts import MYSQL97

SOURCE = replace(MYSQL97, clock_offset=0.2, clock_lead=0.2)
FINE = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_checksum": "CRC32",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "binlog_error_action": "ABORT_SERVER",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "binlog_expire_logs_seconds": "2592000",
    "log_replica_updates": "ON",
    "net_write_timeout": "60",
    "innodb_native_foreign_keys": "OFF",
}


def facts(**given: object) -> Facts:
    """The facts of a source without problems, except for what is ``given``."""
    source = {name: given.pop(name) for name in list(given) if name in Source.__slots__}
    options = given.pop("given", {})
    variables = FINE | dict(given.pop("variables", {}))  # type: ignore[call-overload]
    for name in given.pop("without", ()):  # type: ignore[attr-defined]
        del variables[name]
    values: dict[str, object] = {
        "options": Options.build("mysql://repl@127.0.0.1", options),  # type: ignore[arg-type]
        "source": replace(SOURCE, **source),  # type: ignore[arg-type]
        "chosen_id": False,
        "variables": variables,
        "status": {},
        "account": "'repl'@'%'",
        "grants": ["GRANT SELECT, REPLICATION SLAVE ON *.* TO `repl`@`%`"],
        "refusal": None,
        "uses_tls": True,
        "offers_tls": True,
        "may_see_log": True,
        "filters": ((), ()),
        "replicas": [],
        "replication": Replication(False),
        "sessions": [],
        "tables": Tables((), ()),
        "semi_sync": None,
        "statement": None,
    }
    return Facts(**(values | given))  # type: ignore[arg-type]


def only(check: Callable[[Facts], Iterator[Finding]], **given: object) -> Finding:
    [finding] = check(facts(**given))
    return finding


def sql_of(finding: Finding) -> list[str]:
    return [remedy.text for remedy in finding.remedies if remedy.where == "sql"]


def test_where_all_is_well_there_is_nothing_to_do() -> None:
    findings = all_findings(facts())
    assert {finding.state for finding in findings} == {"ok"}
    assert not any(finding.remedies for finding in findings)
    assert len({finding.check for finding in findings}) == len(findings) >= 20
    assert can_start(findings)


def test_each_bad_finding_says_what_to_type() -> None:
    bad = dict.fromkeys(FINE, "OFF")
    bad |= {"binlog_expire_logs_seconds": "60", "net_write_timeout": "1", "sync_binlog": "0"}
    for is_mariadb, version in (
        (False, (9, 7, 4)),
        (False, (5, 6, 24)),
        (True, (11, 8, 6)),
        (True, (10, 11, 18)),
    ):
        found = facts(
            is_mariadb=is_mariadb,
            version=version,
            has_gtids=False,
            server_id=0,
            clock_offset=99,
            variables=bad,
            uses_tls=False,
            offers_tls=False,
            refusal=ServerError(1227, "42000", "no"),
            may_see_log=False,
            grants=[],
            filters=((), ("shop",)),
            replication=Replication(True, (Channel({"replicate_do_db": "shop"}),)),
            sessions=[SessionSetting("7", "sql_log_bin", "OFF")],
            tables=Tables((KeylessTable("`a`.`b`", "", frozenset()),), ()),
            given={"tls": "preferred", "heartbeat": 0, "semi_sync": True},
        )
        findings = all_findings(found)
        wrong = [finding for finding in findings if finding.state != "ok"]
        assert len(wrong) >= 16
        assert all(finding.remedies for finding in wrong), [
            finding for finding in wrong if not finding.remedies
        ]
        assert not can_start(findings)


@pytest.mark.parametrize(
    ("is_mariadb", "version", "typed"),
    [
        (False, (8, 0, 11), [("sql", "SET PERSIST sync_binlog = 1;")]),
        (False, (5, 7, 44), [("sql", "SET GLOBAL sync_binlog = 1;"), ("option file", "sync_binlog = 1")]),
        (True, (11, 8, 6), [("sql", "SET GLOBAL sync_binlog = 1;"), ("option file", "sync_binlog = 1")]),
    ],
)
def test_settings_outlive_a_restart(is_mariadb: bool, version: tuple[int, ...], typed: list[object]) -> None:
    found = facts(is_mariadb=is_mariadb, version=version, variables={"sync_binlog": "0"})
    [finding] = [finding for finding in check_settings(found) if finding.check == "sync_binlog"]
    assert [(remedy.where, remedy.text) for remedy in finding.remedies] == typed


def test_nodes_of_galera_that_count_by_themselves() -> None:
    given = {"is_mariadb": True, "version": (11, 8, 9)}
    off = only(check_gtids, **given, variables={"wsrep_on": "ON", "wsrep_gtid_mode": "OFF"})
    assert (off.check, off.state) == ("wsrep_gtid_mode", "warning")
    assert [remedy.where for remedy in off.remedies] == ["option file"] * 4
    for variables in (
        {"wsrep_on": "ON", "wsrep_gtid_mode": "ON"},
        {"wsrep_on": "OFF", "wsrep_gtid_mode": "OFF"},
    ):
        assert only(check_gtids, **given, variables=variables).state == "ok"


@pytest.mark.parametrize(
    ("mode", "steps"),
    [
        ("OFF", ["OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]),
        ("OFF_PERMISSIVE", ["ON_PERMISSIVE", "ON"]),
        ("ON_PERMISSIVE", ["ON"]),
    ],
)
def test_the_way_to_gtids(mode: str, steps: list[str]) -> None:
    finding = only(check_gtids, has_gtids=False, variables={"gtid_mode": mode})
    assert sql_of(finding) == [
        "SET PERSIST enforce_gtid_consistency = 'ON';",
        *(f"SET PERSIST gtid_mode = '{step}';" for step in steps),
    ]
    finding = only(check_gtids, has_gtids=False, version=(5, 7, 44), variables={"gtid_mode": mode})
    assert len(sql_of(finding)) == 1 + len(steps)
    assert [remedy.text for remedy in finding.remedies if remedy.where == "option file"] == [
        "enforce_gtid_consistency = ON",
        "gtid_mode = ON",
    ]
    finding = only(check_gtids, has_gtids=False, version=(5, 6, 24), variables={"gtid_mode": "OFF"})
    assert sql_of(finding) == []
    # The remedy gave a log of another name the name "binlog": its positions would have been of no more use.
    assert not any(remedy.text.startswith("log_bin =") for remedy in finding.remedies)
    off = {"has_gtids": False, "version": (5, 6, 24), "log_bin": False}
    finding = only(check_gtids, variables={"gtid_mode": "OFF"}, **off)
    assert "log_bin = binlog" in [remedy.text for remedy in finding.remedies]
    assert only(check_gtids, is_mariadb=True).state == "ok"


@pytest.mark.parametrize(
    ("variables", "state", "told"),
    [
        ({"binlog_expire_logs_seconds": "0"}, "ok", "for ever"),
        ({"binlog_expire_logs_seconds": "3600"}, "warning", "1 hours"),
        ({"binlog_expire_logs_seconds": "3600", "binlog_expire_logs_auto_purge": "OFF"}, "ok", "for ever"),
        ({"binlog_expire_logs_seconds": "259200"}, "ok", "3 days"),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "1"}, "warning", "24 hours"),
        ({"binlog_expire_logs_seconds": "864000", "expire_logs_days": "1"}, "ok", "10 days"),
        ({"max_binlog_total_size": "1000"}, "warning", "1000 bytes"),
    ],
)
def test_retention(variables: dict[str, str], state: str, told: str) -> None:
    finding = only(check_retention, variables=variables)
    assert (finding.state, told in finding.message) == (state, True), finding


def test_retention_by_days() -> None:
    days = {"expire_logs_days": "0.5"}
    finding = only(check_retention, is_mariadb=True, without=("binlog_expire_logs_seconds",), variables=days)
    assert sql_of(finding) == ["SET GLOBAL expire_logs_days = 7;"]
    assert "12 hours" in finding.message


@pytest.mark.parametrize(
    ("grants", "tables", "missing"),
    [
        (["GRANT USAGE ON *.* TO `repl`@`%`"], "*", ["*.*"]),
        (["GRANT USAGE ON *.* TO `repl`@`%`"], "shop.*", ["`shop`.*"]),
        (["GRANT USAGE ON *.* TO `repl`@`%`"], "shop.a,shop.b", ["`shop`.`a`", "`shop`.`b`"]),
        (["GRANT USAGE ON *.* TO `repl`@`%`"], "s*.a", ["*.*"]),
        (
            ["GRANT ALL PRIVILEGES ON *.* TO 'repl'@'%' IDENTIFIED BY PASSWORD '*x' WITH GRANT OPTION"],
            "*",
            [],
        ),
        (["GRANT SELECT ON `shop`.* TO `repl`@`%`"], "shop.*,crm.*", ["`crm`.*"]),
        (["GRANT INSERT, SELECT ON `sh%`.* TO `repl`@`%`"], "shop.a,shop.*", []),
        ([r"GRANT SELECT ON `sh\_op`.* TO `repl`@`%`"], "shxop.*", ["`shxop`.*"]),
        ([r"GRANT SELECT ON `sh\_op`.* TO `repl`@`%`"], "sh_op.*", []),
        (["GRANT SELECT ON `shop`.`a``b` TO `repl`@`%`"], "shop.a`b", []),
        (["GRANT SELECT ON `shop`.`a` TO `repl`@`%`"], "shop.*", ["`shop`.*"]),
        (["GRANT SELECT ON `the shop`.* TO `repl`@`%`"], "the shop.a", []),
        (["GRANT SELECT ON `shop`.`a TO b` TO `repl`@`%`"], "shop.a TO b", []),
        # SELECT on some columns does not show the other columns.
        (["GRANT SELECT (`id`) ON `shop`.`a` TO `repl`@`%`"], "shop.a", ["`shop`.`a`"]),
        (["GRANT `reader`@`%` TO `repl`@`%`", "GRANT SELECT ON *.* TO `reader`"], "*", []),
        # partial_revokes: a grant of all leaves these out.
        (["GRANT SELECT ON *.* TO `r`@`%`", "REVOKE SELECT ON `shop`.* FROM `r`@`%`"], "*", ["`shop`.*"]),
        (
            ["GRANT SELECT ON *.* TO `r`@`%`", "REVOKE SELECT ON `shop`.* FROM `r`@`%`"],
            "shop.a",
            ["`shop`.`a`"],
        ),
        (["GRANT SELECT ON *.* TO `r`@`%`", "REVOKE INSERT, SELECT ON `sh`.* FROM `r`@`%`"], "shop.*", []),
        (["GRANT SELECT ON *.* TO `r`@`%`", "REVOKE UPDATE ON `shop`.* FROM `r`@`%`"], "shop.*", []),
        (["GRANT SELECT ON *.* TO `r`@`%`", "REVOKE SELECT ON `mysql`.* FROM `r`@`%`"], "*", []),
    ],
)
def test_what_select_is_needed_on(grants: list[str], tables: str, missing: list[str]) -> None:
    metadata = {"binlog_row_metadata": "MINIMAL"}
    finding = only(check_select_privilege, grants=grants, variables=metadata, given={"tables": tables})
    assert sql_of(finding) == [f"GRANT SELECT ON {scope} TO 'repl'@'%';" for scope in missing]
    assert finding.state == ("warning" if missing else "ok")
    assert only(check_select_privilege, grants=grants, given={"tables": tables}).state == "ok"


@pytest.mark.parametrize(
    ("grants", "tables", "readable"),
    [
        (["GRANT SELECT ON `shop`.* TO `r`@`%`"], "*", "shop.*"),
        (
            ["GRANT SELECT ON `shop`.* TO `r`@`%`", "GRANT SELECT ON `crm`.`a` TO `r`@`%`"],
            "*",
            "shop.*,crm.a",
        ),
        (["GRANT SELECT ON `shop`.* TO `r`@`%`", "GRANT SELECT ON `crm`.`a` TO `r`@`%`"], "*.b", "shop.b"),
        (["GRANT SELECT ON `shop`.* TO `r`@`%`", "GRANT SELECT ON `crm`.`a` TO `r`@`%`"], "c*.?", "crm.a"),
        ([r"GRANT SELECT ON `my\_shop%`.* TO `r`@`%`"], "*", "my_shop*.*"),
    ],
)
def test_a_user_who_sees_some_schemas(grants: list[str], tables: str, readable: str) -> None:
    """README's own privileges: a copy has what the user sees, and the remedy is no right to read everything."""
    metadata = {"binlog_row_metadata": "MINIMAL"}
    finding = only(check_select_privilege, grants=grants, variables=metadata, given={"tables": tables})
    assert [remedy.text for remedy in finding.remedies] == [f"tables={readable}"]
    copy = only(check_copy_privileges, grants=grants, given={"tables": tables})
    assert (copy.state, readable.split(",")[0] in copy.message) == ("ok", True)


@pytest.mark.parametrize(
    ("filters", "tables", "out"),
    [
        (((), ("secret",)), "shop.*", []),
        (((), ("secret",)), "*", ["binlog_ignore_db = secret"]),
        (((), ("secret", "shop")), "s?o*.t", ["binlog_ignore_db = shop"]),
        ((("shop", "crm"), ()), "shop.*,crm.user", []),
        ((("shop", "crm"), ()), "shop.*,other.user", ["binlog_do_db = shop", "binlog_do_db = crm"]),
    ],
)
def test_filters(filters: object, tables: str, out: list[str]) -> None:
    finding = only(check_filters, filters=filters, given={"tables": tables})
    assert [remedy.text for remedy in finding.remedies] == out
    assert {remedy.where for remedy in finding.remedies} <= {"out of option file"}


def test_what_may_not_be_asked_is_not_judged() -> None:
    found = facts(filters=None, replication=Replication(None), sessions=None, may_see_log=False)
    for check in (check_filters, check_logged_updates, check_sessions, check_statement):
        assert not list(check(found))


@pytest.mark.parametrize(
    ("seconds", "state"), [(0.9, "ok"), (-2.9, "ok"), (4, "warning"), (-3600, "warning")]
)
def test_clocks(seconds: float, state: str) -> None:
    finding = only(check_clock, clock_offset=seconds)
    assert finding.state == state
    if state == "warning":
        assert ("ahead of" if seconds > 0 else "behind") in finding.message


def test_a_certificate_that_ends() -> None:
    def status(days: int) -> dict[str, str]:
        end = datetime.now(UTC) + timedelta(days=days)
        return {"ssl_server_not_after": f"{end:%b %d %H:%M:%S %Y} GMT"}

    assert only(check_tls, status=status(31)).state == "ok"
    for days in (29, -1):
        assert sql_of(only(check_tls, status=status(days))) == ["ALTER INSTANCE RELOAD TLS;"]
        assert sql_of(only(check_tls, status=status(days), is_mariadb=True)) == ["FLUSH SSL;"]
    assert only(check_tls, status={"ssl_server_not_after": "nonsense"}).state == "ok"


def test_a_socket_needs_no_tls() -> None:
    assert only(check_tls, uses_tls=False, given={"unix_socket": "/run/x"}).state == "ok"
    assert "tunnel" in only(check_tls, uses_tls=False, offers_tls=False, version=(5, 6, 24)).message
    off = only(check_tls, uses_tls=False, given={"tls": "disabled"})
    assert off.remedies == (Remedy("stream option", "tls=required"),)


def test_zstd_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = {"binlog_transaction_compression": "ON"}
    assert only(check_compression, variables=compressed).state == "ok"
    monkeypatch.setattr(log_checks, "_can_import", lambda module: False)
    finding = only(check_compression, variables=compressed)
    assert finding.state == "failure"
    assert finding.remedies == (Remedy("shell", "pip install 'mysql-replica[zstd]'"),)
    assert only(check_compression).state == "ok"


def test_identities() -> None:
    mine = {"given": {"server_id": 7}, "chosen_id": True}
    twin = [OtherReplica(7, "db2", "3306", "x")]
    assert only(check_server_id, **mine).state == "ok"
    assert only(check_server_id, **mine, replicas=twin).state == "warning"
    assert only(check_server_id, **mine, replicas=twin, is_mariadb=True).state == "failure"
    taken = [*twin, OtherReplica(1001, "", "", ""), OtherReplica(1002, "", "", "")]
    finding = only(check_server_id, **mine, replicas=taken)
    assert finding.remedies == (Remedy("stream option", "server_id=1003"),)
    assert only(check_server_id, replicas=None).state == "ok"
    assert sql_of(only(check_server_id, **mine, replicas=None, is_mariadb=True, version=(10, 11, 1))) == [
        "GRANT REPLICATION MASTER ADMIN ON *.* TO 'repl'@'%';"
    ]


def test_a_semi_synchronous_source() -> None:
    wanted = {"given": {"semi_sync": True}}
    assert not list(check_semi_sync(facts()))
    assert only(check_semi_sync, **wanted, semi_sync=("rpl_semi_sync_source_enabled", True)).state == "ok"
    off = only(check_semi_sync, **wanted, semi_sync=("rpl_semi_sync_master_enabled", False))
    assert sql_of(off) == ["SET PERSIST rpl_semi_sync_master_enabled = 1;"]
    assert sql_of(only(check_semi_sync, **wanted, version=(5, 7, 44)))[0].startswith(
        "INSTALL PLUGIN rpl_semi_sync_master"
    )


def semi_sync(word: str, status: str, clients: int, timeout: str = "10000", **given: object) -> Finding:
    """The finding on a source whose semi-synchronous replication is switched on."""
    prefix = f"rpl_semi_sync_{word}"
    return only(
        check_semi_sync,
        given={"semi_sync": True},
        semi_sync=(f"{prefix}_enabled", True),
        variables={f"{prefix}_timeout": timeout},
        status={f"{prefix}_status": status, f"{prefix}_clients": str(clients)},
        **given,
    )


@pytest.mark.parametrize(
    ("word", "server"),
    [
        ("source", {}),
        ("master", {"version": (8, 0, 25)}),
        ("master", {"is_mariadb": True, "version": (11, 8, 6)}),
    ],
)
def test_a_commit_waits_for_an_acknowledgement_until_the_timeout(word: str, server: dict[str, Any]) -> None:
    timeout = f"rpl_semi_sync_{word}_timeout"
    limit = f"a commit waits at most 10 s ({timeout}), then the source falls back to asynchronous"
    waiting = semi_sync(word, "ON", 1, **server)
    assert (waiting.state, limit in waiting.message, "connected" in waiting.message) == ("ok", True, False)
    alone = semi_sync(word, "OFF", 0, **server)
    assert (alone.state, limit in alone.message) == ("ok", True)
    assert alone.message.endswith("no semi-synchronous replica is connected")
    fallen_back = semi_sync(word, "OFF", 2, **server)
    assert fallen_back.state == "warning"
    assert (
        f"rpl_semi_sync_{word}_status is OFF with semi-synchronous replicas connected (2)"
        in fallen_back.message
    )
    assert f"{timeout} = 20000;" in sql_of(fallen_back)[0]
    short = semi_sync(word, "ON", 1, "999", **server)
    assert short.state == "warning"
    assert f"{timeout} is short: a commit waits at most 0.999 s" in short.message
    assert f"{timeout} = 10000;" in sql_of(short)[0]
    assert semi_sync(word, "ON", 1, "1000", **server).state == "ok"


def test_heartbeat_and_slow_consumers() -> None:
    heartbeat, timeout = check_timeouts(facts(given={"heartbeat": 0}, variables={"net_write_timeout": "10"}))
    assert heartbeat.remedies == (Remedy("stream option", "heartbeat=30"),)
    assert sql_of(timeout) == ["SET PERSIST net_write_timeout = 60;"]


def test_tables() -> None:
    keyless = [
        KeylessTable("`s`.`a`", "", frozenset({"`id`", "`id_1`"})),
        KeylessTable("`s`.`b`", "`n`", frozenset({"`n`"})),
    ]
    finding = only(check_primary_keys, tables=Tables(tuple(keyless), ()))
    assert sql_of(finding) == [
        "ALTER TABLE `s`.`a` ADD COLUMN `id_2` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY;",
        "ALTER TABLE `s`.`b` ADD PRIMARY KEY (`n`);",
    ]
    cascade = Cascade("`s`.`c`", "`k`", "FOREIGN KEY (`a`) REFERENCES `p` (`a`)", "ON DELETE CASCADE")
    native = {"innodb_native_foreign_keys": "ON"}
    tables = Tables((), (cascade,))
    assert only(check_cascades, tables=tables).state == "ok"
    assert only(check_cascades, tables=tables, variables=native).remedies == (
        Remedy("option file", "innodb_native_foreign_keys = OFF"),
    )


def test_generated_columns() -> None:
    assert list(check_generated_columns(facts(tables=None))) == []
    assert list(check_generated_columns(facts(tables=Tables((), ())))) == []
    finding = only(check_generated_columns, tables=Tables((), (), (), ("`s`.`a`.`g`",)))
    assert (finding.state, finding.message.split(":")[0]) == ("ok", "s.a.g")


def test_how_long_a_copy_may_take() -> None:
    large = Tables((), (), (CopiedTable("`a`.`b`", "InnoDB", 5_000_000_000, 1 << 40, True),))
    short = {"binlog_expire_logs_seconds": "86400"}
    assert "5,000,000,000 rows" in only(check_copy_log, tables=large).message
    found = only(check_copy_log, tables=large, variables=short)
    assert (found.state, sql_of(found)) == (
        "warning",
        ["SET PERSIST binlog_expire_logs_seconds = 604800;"],
    )
    assert only(check_copy_log, tables=Tables((), ()), variables=short).state == "ok"
    limited = only(check_copy_log, tables=large, variables={"max_binlog_total_size": "1000"})
    assert sql_of(limited) == ["SET PERSIST max_binlog_total_size = 0;"]


def test_a_refusal_and_a_statement() -> None:
    refused = only(check_replication_privilege, refusal=ServerError(1045, "28000", "Access denied"))
    assert sql_of(refused) == ["GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';"]
    statement = Statement("bin.000007", 1234, "INSERT\n INTO t  VALUES " + "(1), " * 100)
    found = only(check_statement, statement=statement)
    assert "bin.000007:1234" in found.message
    assert "INSERT INTO t VALUES" in found.message
    assert len(found.message) < 250
