"""DDL of sessions that are not like others: character sets, modes, temporary tables. All servers accept it.

A case is a list of statements of one session, in a schema without tables. ``Sent`` is sent in another character set.
``HIDDEN`` begins statements behind which the tables are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Reasons for which a table's columns are not known behind some of the statements.
UNKNOWN = (
    "may not have, or the session",
    "the default character set of the table is not known",
    "may be a temporary table",
    "the server may have made the statement",
    "the statement's own settings",
    "columns come from a SELECT",
    "a quote or comment that is not closed",
)
HIDDEN = "/* hidden */ "
_SWAP = "CHANGE a b INT, CHANGE b a INT"


@dataclass(frozen=True)
class Sent:
    """A statement in the character set of its client: a codec of Python."""

    sql: str
    codec: str

    @property
    def bytes(self) -> bytes:
        return self.sql.encode(self.codec)


def sent(codec: str, *statements: str) -> tuple[str | Sent, ...]:
    return tuple(Sent(sql, codec) for sql in statements)


Case = tuple[str | Sent, ...]

CASES: dict[str, Case] = {
    "latin1": (
        "SET NAMES latin1",
        *sent(
            "latin1",
            "CREATE TABLE t (`é` INT, b ENUM('ü', 'x') CHARSET latin1, c SET('ü') CHARSET utf8, d INT)",
            "ALTER TABLE t CHANGE `é` d INT, CHANGE d ñ INT",
            "CREATE TABLE ä (ö INT)",
            "ALTER TABLE ä RENAME TO ë",
            "DROP TABLE ë",
            "CREATE TABLE IF NOT EXISTS ë (x INT)",
            "CREATE TABLE o LIKE ë",
        ),
    ),
    "no-break spaces": (
        "SET NAMES latin1",
        "CREATE TABLE t (a INT, b INT)",
        *sent("latin1", f"ALTER\xa0TABLE t {_SWAP}", "ALTER TABLE\xa0t ADD\xa0c INT"),
        "SET NAMES cp852",
        *sent("cp852", f"ALTER\xa0TABLE t {_SWAP}"),
        "SET NAMES utf8",
        "ALTER TABLE t ADD \xa0d INT",
    ),
    "statements that the server makes": (
        "SET NAMES latin1",
        *sent(
            "latin1",
            "CREATE TABLE t (`é` INT, b ENUM('ü', 'x'))",
            "CREATE TABLE u AS SELECT é, b FROM t",
            "CREATE TEMPORARY TABLE v (ñ INT, b ENUM('ü','x'))",
            "CREATE TABLE w LIKE v",
            "DROP TABLE v",
        ),
    ),
    "cp1251": (
        "SET NAMES cp1251",
        *sent("cp1251", "CREATE TABLE т (я ENUM('да', 'нет'), а INT)", "ALTER TABLE т CHANGE а б INT FIRST"),
    ),
    "gbk": (
        "SET NAMES gbk",
        *sent(
            "gbk",
            "CREATE TABLE t (`稜縗` INT, `a` ENUM('稜', '縗'))",
            "ALTER TABLE t ADD 中 INT, CHANGE `a` `縗` INT",
            "CREATE TABLE 中 (x INT)",
            "DROP TABLE 中",
            "CREATE TABLE IF NOT EXISTS 中 (y INT)",
        ),
    ),
    "sjis": (
        "SET NAMES sjis",
        *sent(
            "shift_jis",
            "CREATE TABLE t (`表` INT, `a` ENUM('表', 'ソ'))",
            "ALTER TABLE t ADD ソ INT, CHANGE `a` `能` INT",
        ),
    ),
    "binary": (
        "SET NAMES binary",
        *sent("utf-8", "CREATE TABLE t (`é` INT, b ENUM('ü','x') CHARSET latin1)"),
        *sent("utf-8", "ALTER TABLE t CHANGE `é` `ñ` INT, MODIFY b INT"),
        "ALTER TABLE t ADD c SET('xy', 'zzzz') CHARSET ucs2",
    ),
    "another set for literals": (
        "SET NAMES utf8",
        "SET character_set_connection = latin1",
        "CREATE TABLE t (a ENUM('日', 'é') CHARSET utf8mb4, b INT)",
        "CREATE TABLE u (a ENUM('ö', 'é') CHARSET utf8mb4, b INT)",
    ),
    "temporary tables that are logged": (
        "SET SESSION binlog_format = STATEMENT",
        "CREATE TABLE t (a INT, b INT)",
        "CREATE TEMPORARY TABLE t (a INT, b INT)",
        f"ALTER TABLE t {_SWAP}",
        "CREATE TABLE u LIKE t",
        "ALTER TABLE t ADD z INT",
        "CREATE TABLE w LIKE t",
        "ALTER TABLE t RENAME TO x",
        "DROP TEMPORARY TABLE x",
        "CREATE TABLE x (y INT)",
        "SET SESSION binlog_format = ROW",
    ),
    "like a temporary table": (
        "CREATE TEMPORARY TABLE v (a TEXT, b VARCHAR(5), d ENUM('x') CHARSET utf8) CHARSET latin1",
        "CREATE TABLE w LIKE v",
        "CREATE TEMPORARY TABLE u (a TEXT CHARSET latin1, b INT) CHARSET utf8",
        "CREATE TABLE x (LIKE u)",
        "CREATE TABLE y SELECT * FROM u",
        "CREATE TABLE z (a TEXT) SELECT b FROM u",
        "DROP TEMPORARY TABLE u, v",
    ),
    "names behind a dot": (
        "CREATE TABLE {schema}.0x61 (a INT, b INT)",
        f"ALTER TABLE {{schema}}.0x61 {_SWAP}",
        "CREATE TABLE {schema}.0b01 (a INT, b INT)",
        f"ALTER TABLE {{schema}}.0b01 {_SWAP}",
        "CREATE TABLE {schema}.123 (a INT, b INT)",
        f"ALTER TABLE {{schema}}.123 {_SWAP}",
    ),
    "backslashes in statements that the server makes": (
        r"CREATE TABLE t (e ENUM('a\\b', 'c'))",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "CREATE TABLE u AS SELECT * FROM t",
        "CREATE TEMPORARY TABLE v LIKE t",
        "CREATE TABLE w LIKE v",
        "CREATE TABLE x LIKE t",
        r"CREATE TABLE y (e ENUM('\', 'c'))",
        "DROP TABLE v",
    ),
    "modes that leave options out": (
        "SET sql_mode = 'ANSI'",
        "CREATE TABLE t (a TEXT CHARSET latin1) CHARSET latin1",
        "CREATE TABLE u CHARSET latin1 SELECT * FROM t",
        "CREATE TABLE v CHARSET utf8mb4 AS SELECT a, 1 AS b FROM t",
    ),
    "control characters in front of a comment": (
        "CREATE TABLE t (a INT, b INT)",
        f"--\x01 x\nALTER TABLE t {_SWAP}, ADD c INT",
        f"--\x7f x\nALTER TABLE t {_SWAP}, ADD d INT",
        f"ALTER\x0bTABLE\x0ct {_SWAP}",
    ),
    "comments that are not run": (
        "CREATE TABLE t (a INT, b INT, c INT)",
        "ALTER TABLE t ADD x INT /*!99999 , DROP a /* b */ , DROP b */",
        "PREPARE s FROM 'ALTER TABLE t ADD z INT /*!99999 , DROP a */'",
        "EXECUTE s",
        "CREATE PROCEDURE p() ALTER TABLE t ADD y INT /*!99999 , DROP b */",
        "CALL p()",
        "DROP PROCEDURE p",
    ),
    "a view of the name": (
        "CREATE TABLE s (a INT)",
        "CREATE VIEW v AS SELECT * FROM s",
        HIDDEN + "CREATE TABLE IF NOT EXISTS v (x INT)",
        "DROP VIEW v",
        "CREATE TABLE IF NOT EXISTS v (y INT)",
        HIDDEN + "DROP VIEW IF EXISTS s, nothing",
    ),
}
MARIADB_CASES: dict[str, Case] = {
    "timestamps that may be NULL": (
        "SET explicit_defaults_for_timestamp = 1",
        "CREATE TABLE t (a TIMESTAMP)",
        "SET explicit_defaults_for_timestamp = 0",
        "CREATE TABLE u (a TIMESTAMP)",
        "SET explicit_defaults_for_timestamp = DEFAULT",
    ),
    "replaced by a table like another": (
        "CREATE TABLE t (z INT)",
        "CREATE TABLE u (a INT, b INT)",
        "CREATE OR REPLACE TABLE t LIKE u",
        "SET SESSION binlog_format = MIXED",
        "CREATE TEMPORARY TABLE u (b INT, a INT)",
        "CREATE OR REPLACE TABLE t LIKE u",
        "DROP TEMPORARY TABLE u",
        "SET SESSION binlog_format = ROW",
    ),
    "settings of one statement": (
        "CREATE TABLE t (a INT, b INT)",
        "SET STATEMENT max_statement_time = CAST(SUBSTRING('12' FROM 1 FOR 1) AS INT) FOR "
        f"ALTER TABLE t {_SWAP}",
        r"SET STATEMENT sql_mode = 'NO_BACKSLASH_ESCAPES' FOR ALTER TABLE t ADD e ENUM('x\\y', 'q')",
        "CREATE TABLE u (a INT)",
        "SET STATEMENT max_statement_time = 9, lock_wait_timeout = 1 FOR ALTER TABLE u ADD b INT",
    ),
    "square brackets": (
        "SET sql_mode = 'MSSQL'",
        "CREATE TABLE [t x] ([a b] INT, [c]]d] INT)",
        "ALTER TABLE [t x] CHANGE [a b] [c]]d] INT, CHANGE [c]]d] [a b] INT",
    ),
}
