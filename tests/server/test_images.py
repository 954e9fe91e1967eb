"""The servers that the tests start have the expected family, version and settings, whatever their images."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pymysql
import pytest

from tests.support.servers import SERVERS, Server

PLUGINS = {
    "mysql:9.7": {"caching_sha2_password", "sha256_password"},
    "mysql:5.6": {"mysql_native_password", "sha256_password"},
    "mariadb:10.11": {"mysql_native_password"},
    "mariadb:11.8": {"mysql_native_password"},
}


def test_the_server_is_of_the_version_its_tag_names(server: Server) -> None:
    family, _, tag = server.name.partition(":")
    assert server.version[:2] == tuple(int(number) for number in tag.split("."))
    assert server.family == family
    [(version,)] = server.query("SELECT VERSION()")
    assert ("MariaDB" in version) == (family == "mariadb")


def test_it_writes_a_row_format_log(server: Server, schema: str) -> None:
    assert server.query("SELECT @@log_bin, @@binlog_format, @@max_allowed_packet") == [(1, "ROW", 128 << 20)]
    before = _end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT)")
    assert _end_of_log(server) > before


def _end_of_log(server: Server) -> tuple[str, int]:
    file, size, *_ = server.query("SHOW BINARY LOGS")[-1]
    return file, size


def test_gtids_are_on(server: Server) -> None:
    if server.family == "mysql":
        assert server.query("SELECT @@gtid_mode") == [("ON",)]
    else:
        [(gtid,)] = server.query("SELECT @@gtid_binlog_pos")
        assert gtid.split("-")[1] == str(server.server_id)


def test_server_ids_differ(mysql97: Server, mysql56: Server, mariadb1011: Server, mariadb118: Server) -> None:
    servers = (mysql97, mysql56, mariadb1011, mariadb118)
    assert len({server.server_id for server in servers}) == len(SERVERS)


@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6"], indirect=True)
def test_two_containers_of_an_image_have_two_uuids(
    server: Server, extra_server: Callable[..., Server]
) -> None:
    other = extra_server(server.name)
    assert server.query("SELECT @@server_uuid") != other.query("SELECT @@server_uuid")


def test_authentication_plugins(server: Server) -> None:
    active = {name for name, status, *_ in server.query("SHOW PLUGINS") if status == "ACTIVE"}
    assert active >= PLUGINS[server.name]


def test_the_replica_user_may_ask_where_the_log_ends(server: Server) -> None:
    replica = server.connect(user=server.replica_user, password=server.replica_password)
    with replica, replica.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        assert cursor.fetchall()


def test_a_wrong_password_is_refused(server: Server) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        server.connect(password="wrong")


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_tls_is_on(server: Server) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with server.connect(ssl=context) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        row = cursor.fetchone()
    assert row is not None
    assert row[1]


@pytest.mark.parametrize(
    ("server", "tool"),
    [("mysql:9.7", "mysqlbinlog"), ("mariadb:10.11", "mariadb-binlog"), ("mariadb:11.8", "mariadb-binlog")],
    indirect=["server"],
)
def test_the_log_can_be_printed_in_the_container(server: Server, tool: str) -> None:
    [(first, *_), *_] = server.query("SHOW BINARY LOGS")
    printed = server.exec(tool, "-vv", f"/var/lib/mysql/{first}")
    assert b"# End of log file" in printed


def test_semi_sync_and_the_keyring_can_be_had(extra_server: Callable[..., Server]) -> None:
    server = extra_server("mysql:9.7", "--plugin-load-add=semisync_source.so")
    assert "rpl_semi_sync_source" in {name for name, *_ in server.query("SHOW PLUGINS")}
    [(plugin_dir,)] = server.query("SELECT @@plugin_dir")
    assert b"component_keyring_file.so" in server.exec("ls", plugin_dir)


@pytest.mark.parametrize("name", SERVERS)
def test_arguments_reach_the_server(name: str, extra_server: Callable[..., Server]) -> None:
    gtid_off = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF") if name == "mysql:5.6" else ()
    log_updates_off = ("--skip-log-slave-updates",) if name == "mysql:5.6" else ()
    server = extra_server(name, "--skip-log-bin", *gtid_off, *log_updates_off)
    assert server.query("SELECT @@log_bin") == [(0,)]


def test_a_schema_is_dropped_after_use(server: Server) -> None:
    with server.fresh_schema() as name:
        server.query(f"CREATE TABLE {name}.t (a INT)")
        assert (name,) in server.query("SHOW DATABASES")
    assert (name,) not in server.query("SHOW DATABASES")


def test_data_and_port_outlive_a_restart(extra_server: Callable[..., Server]) -> None:
    server = extra_server("mysql:9.7")
    server.query("CREATE DATABASE kept")
    server.container.get_wrapped_container().kill()
    server.container.get_wrapped_container().start()
    server.wait_until_ready()
    assert ("kept",) in server.query("SHOW DATABASES")
