"""The SET statements before statements and row changes, so that client and server read these as meant."""

from __future__ import annotations

import struct

from replica.render.sql_session import SqlSession
from tests.support.rendered_events import query

SJIS, UTF8MB4, LATIN1 = 13, 255, 8


def statement(session: SqlSession, collation: int, sql: str = "DROP TABLE t") -> list[bytes]:
    event = query(sql)
    event.status_variables = b"\4" + struct.pack("<HHH", collation, collation, collation)
    return b"".join(session.statement(event, sql)).splitlines()


def test_the_client_is_told_of_sets_in_which_characters_end_in_quotes() -> None:
    session = SqlSession()
    session.follow("mysql", "9.7.4")
    for collation in (LATIN1, UTF8MB4):
        assert not any(line.startswith(rb"/*!\C") for line in statement(session, collation))
    lines = statement(session, SJIS, "DROP TABLE \udc95\\")
    told, server = (
        lines.index(rb"/*!\C sjis */;"),
        lines.index(
            b"SET @@session.character_set_client=13,@@session.collation_connection=13,@@session.collation_server=13;"
        ),
    )
    assert told < server < lines.index(b"DROP TABLE \x95\\")
    assert rb"/*!\C sjis */;" not in statement(session, SJIS)
    assert rb"/*!\C utf8mb4 */;" in statement(session, LATIN1)
    assert session.rows().startswith("SET NAMES utf8mb4;\n")
    assert rb"/*!\C sjis */;" in statement(session, SJIS)
    # Literals of row changes are in UTF-8.
    assert session.rows().startswith("/*!\\C utf8mb4 */;\nSET NAMES utf8mb4;\n")
    assert session.rows() == ""


def test_a_statement_gets_the_default_collations_that_it_was_logged_with() -> None:
    session = SqlSession()
    session.follow("mariadb", "11.8.6-MariaDB")
    event = query("CREATE TABLE t (a CHAR(1) CHARACTER SET utf8mb4)")
    event.status_variables = b"\x83\x01" + struct.pack("<HH", 45, 46)
    lines = b"".join(session.statement(event, event.sql)).splitlines()
    setting = lines.index(b"SET @@session.character_set_collations='utf8mb4=utf8mb4_bin';")
    assert setting < lines.index(event.sql.encode() + b";")


def test_mariadbs_collations_of_character_sets_are_set() -> None:
    """Without them, CREATE TABLE on the target takes other default collations (MariaDB 11.2 and later)."""
    session = SqlSession()
    session.follow("mariadb", "11.8.6-MariaDB-log")
    event = query("CREATE TABLE t (a TEXT) CHARACTER SET utf8mb4")
    # One pair: the character set by its default collation utf8mb4_general_ci, and utf8mb4_bin.
    event.status_variables = b"\x83\x01" + struct.pack("<HH", 45, 46)
    lines = b"".join(session.statement(event, event.sql)).splitlines()
    setting = b"SET @@session.character_set_collations='utf8mb4=utf8mb4_bin';"
    assert lines.index(setting) < lines.index(event.sql.encode() + b";")
    # The rows that follow run with the usual settings, and the next statement with its own again.
    session.rows()
    assert setting in b"".join(session.statement(event, event.sql)).splitlines()


def test_a_server_is_given_no_settings_that_it_does_not_know() -> None:
    """mariadb-binlog sets ``system_versioning_insert_history`` (10.11) for logs of any version."""
    for version, is_known in (("10.6.23-MariaDB-log", False), ("10.11.18-MariaDB", True)):
        session = SqlSession()
        session.follow("mariadb", version)
        event = query("DROP TABLE t")
        event.status_variables = b"\0" + struct.pack("<I", 0)
        text = b"".join(session.statement(event, event.sql))
        assert (b"system_versioning_insert_history" in text) == is_known
        assert b"@@session.check_constraint_checks=1" in text
