"""Statements that change tables, with rows before and behind each: what a consumer that is behind must get right.

Each case is a list of statements in one schema. The rows that INSERT and UPDATE statements add are compared with what
SELECT shows right behind the statement, under the names and with the types of that moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MYSQL, MARIADB = "mysql", "mariadb"
_T = "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, a VARCHAR(20), b VARCHAR(20), n INT UNSIGNED, e ENUM('x','y'))"
_SMALL = "INSERT INTO t (id, a, b, n, e) VALUES (2, 'a', 'b', 7, 'y')"
_ROW = "INSERT INTO t (id, a, b, n, e) VALUES ({}, 'a', 'b', 4000000000, 'y')"


@dataclass(frozen=True)
class Case:
    """``before`` runs before the consumer's first connection, ``behind`` after it."""

    name: str
    behind: tuple[str, ...]
    before: tuple[str, ...] = (_T, _ROW.format(1))
    families: tuple[str, ...] = (MYSQL, MARIADB)
    since: tuple[int, ...] = field(default=(5, 6))


def case(name: str, *behind: str, **options: Any) -> Case:
    return Case(name, behind, **options)


def altered(name: str, clauses: str, row: str, *, first: str = _ROW.format(2), **options: Any) -> Case:
    """A row, ALTER TABLE, a row."""
    return case(name, first, f"ALTER TABLE t {clauses}", row, **options)


_SAME = _ROW.format(3)
_EIGHT: dict[str, Any] = {"families": (MYSQL,), "since": (8, 0)}
_MARIA: dict[str, Any] = {"families": (MARIADB,)}

CASES: tuple[Case, ...] = (
    # Columns
    altered("add at the end", "ADD c INT UNSIGNED", "INSERT INTO t VALUES (3,'a','b',1,'x',4000000001)"),
    altered("add first", "ADD c VARCHAR(20) FIRST", "INSERT INTO t VALUES ('c',3,'a','b',1,'x')"),
    altered("add after", "ADD COLUMN c VARCHAR(20) AFTER a", "INSERT INTO t VALUES (3,'a','c','b',1,'x')"),
    altered("add several", "ADD (c INT, d VARCHAR(20))", "INSERT INTO t VALUES (3,'a','b',1,'x',5,'d')"),
    altered("drop", "DROP a", "INSERT INTO t VALUES (3,'b',1,'x')"),
    altered(
        "drop and add alike", "DROP a, ADD c VARCHAR(20) AFTER id", "INSERT INTO t VALUES (3,'c','b',1,'x')"
    ),
    altered(
        "drop then add after", "DROP b, ADD z VARCHAR(20) AFTER a", "INSERT INTO t VALUES (3,'a','z',1,'x')"
    ),
    altered("change name", "CHANGE a renamed VARCHAR(20)", "INSERT INTO t VALUES (3,'a','b',1,'x')"),
    altered(
        "change name and place", "CHANGE a c VARCHAR(20) AFTER b", "INSERT INTO t VALUES (3,'b','c',1,'x')"
    ),
    altered(
        "swap names",
        "CHANGE a b VARCHAR(20), CHANGE b a VARCHAR(20)",
        "INSERT INTO t VALUES (3,'was a','was b',1,'x')",
    ),
    altered("swap places", "MODIFY b VARCHAR(20) AFTER id", "INSERT INTO t VALUES (3,'b','a',1,'x')"),
    altered("modify first", "MODIFY b VARCHAR(20) FIRST", "INSERT INTO t VALUES ('b',3,'a',1,'x')"),
    altered(
        "modify sign",
        "MODIFY n INT",
        "INSERT INTO t VALUES (3,'a','b',-5,'x')",
        before=(_T,),
        first=_SMALL,
    ),
    altered("modify length", "MODIFY a VARCHAR(200)", _SAME),
    altered(
        "modify charset",
        "MODIFY a VARCHAR(20) CHARACTER SET latin1",
        "INSERT INTO t VALUES (3,'ä','ö',1,'x')",
    ),
    altered("modify labels", "MODIFY e ENUM('y','x','z')", "INSERT INTO t VALUES (3,'a','b',1,'z')"),
    altered("labels to set", "MODIFY e SET('x','y')", "INSERT INTO t VALUES (3,'a','b',1,'x,y')"),
    altered("not null", "MODIFY n INT UNSIGNED NOT NULL", _SAME),
    altered("default only", "ALTER a SET DEFAULT 'q', ALTER n DROP DEFAULT", _SAME),
    altered("rename column", "RENAME COLUMN a TO c", "INSERT INTO t VALUES (3,'c','b',1,'x')", since=(8, 0)),
    altered(
        "rename columns crosswise",
        "RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "INSERT INTO t VALUES (3,'was a','was b',1,'x')",
        since=(8, 0),
    ),
    altered(
        "many clauses",
        "DROP e, ADD c INT UNSIGNED AFTER id, CHANGE a aa VARCHAR(20), MODIFY n BIGINT UNSIGNED FIRST, ADD KEY (b)",
        "INSERT INTO t VALUES (18446744073709551615,3,4000000000,'a','b')",
    ),
    altered(
        "instant", "ADD c INT, ALGORITHM=INSTANT", "INSERT INTO t VALUES (3,'a','b',1,'x',9)", since=(8, 0)
    ),
    altered("inplace", "ADD c INT, ALGORITHM=INPLACE, LOCK=NONE", "INSERT INTO t VALUES (3,'a','b',1,'x',9)"),
    altered(
        "if exists",
        "DROP COLUMN IF EXISTS a, DROP COLUMN IF EXISTS nothing",
        "INSERT INTO t VALUES (3,'b',1,'x')",
        **_MARIA,
    ),
    altered(
        "add if not exists",
        "ADD COLUMN IF NOT EXISTS a INT, ADD COLUMN IF NOT EXISTS c INT",
        "INSERT INTO t VALUES (3,'a','b',1,'x',8)",
        **_MARIA,
    ),
    altered(
        "generated",
        "ADD g INT UNSIGNED AS (n) STORED AFTER a",
        "INSERT INTO t (id,a,b,n,e) VALUES (3,'a','b',4000000000,'x')",
        since=(5, 7),
    ),
    altered(
        "generated virtual",
        "ADD g INT UNSIGNED AS (n) VIRTUAL AFTER a",
        "INSERT INTO t (id,a,b,n,e) VALUES (3,'a','b',4000000000,'x')",
        since=(5, 7),
    ),
    altered(
        "invisible",
        "ADD i INT INVISIBLE DEFAULT 3 AFTER id",
        "INSERT INTO t (id,i,a,b,n,e) VALUES (3,9,'a','b',1,'x')",
        since=(8, 0),
    ),
    altered(
        "visible",
        "ALTER COLUMN a SET INVISIBLE",
        "INSERT INTO t (id,a,b,n,e) VALUES (3,'a','b',1,'x')",
        **_EIGHT,
    ),
    altered("check", "ADD CONSTRAINT positive CHECK (n > 0)", _SAME),
    altered("comment with quotes", "MODIFY a VARCHAR(20) COMMENT 'it''s, DROP b; -- \\' )'", _SAME),
    altered("backticks", "CHANGE a `we``ird, name` VARCHAR(20)", "INSERT INTO t VALUES (3,'a','b',1,'x')"),
    altered(
        "comments between",
        "/* DROP b, */ ADD -- here\n c INT # there\n AFTER /*! a */",
        "INSERT INTO t VALUES (3,'a',7,'b',1,'x')",
    ),
    altered("version comment", "/*!50600 ADD c INT AFTER a */", "INSERT INTO t VALUES (3,'a',7,'b',1,'x')"),
    # Keys and the table as a whole
    altered("drop the key", "DROP PRIMARY KEY", _SAME),
    altered(
        "another key",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)",
        _SAME,
        before=(_T,),
        first=_SMALL,
    ),
    altered(
        "unique key",
        "DROP PRIMARY KEY, MODIFY n INT UNSIGNED NOT NULL, ADD UNIQUE KEY (n)",
        "INSERT INTO t VALUES (3,'a','b',9,'x')",
        before=(_T,),
    ),
    altered("convert", "CONVERT TO CHARACTER SET latin1", "INSERT INTO t VALUES (3,'ä','b',1,'x')"),
    altered(
        "default charset",
        "DEFAULT CHARACTER SET latin1, ADD c VARCHAR(20)",
        "INSERT INTO t VALUES (3,'a','b',1,'x','ü')",
    ),
    altered("engine and order", "ENGINE=InnoDB, ORDER BY b", _SAME),
    altered("rename by alter", "RENAME TO u, ADD c INT", "INSERT INTO u VALUES (3,'a','b',1,'x',5)"),
    altered("partitioned", "PARTITION BY HASH (id) PARTITIONS 3", _SAME),
    altered("system versioned", "ADD SYSTEM VERSIONING", _SAME, **_MARIA),
    case(
        "create index", _ROW.format(2), "CREATE INDEX k ON t (a)", _SAME, "DROP INDEX k ON t", _ROW.format(4)
    ),
    case("truncate", _ROW.format(2), "TRUNCATE t", _SAME),
    # Tables
    case("rename", _ROW.format(2), "RENAME TABLE t TO u", "INSERT INTO u VALUES (3,'a','b',1,'x')"),
    case(
        "swap tables",
        _ROW.format(2),
        "RENAME TABLE t TO tmp, u TO t, tmp TO u",
        "INSERT INTO t VALUES (1,'c','d')",
        "INSERT INTO u VALUES (3,'a','b',1,'x')",
        before=(_T, _ROW.format(1), "CREATE TABLE u (id INT PRIMARY KEY, c VARCHAR(20), d VARCHAR(20))"),
    ),
    case(
        "drop and create",
        _ROW.format(2),
        "DROP TABLE t",
        "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, b VARCHAR(20), a VARCHAR(20), n INT UNSIGNED, e ENUM('y','x'))",
        "INSERT INTO t VALUES (3,'b','a',4000000000,'y')",
    ),
    case("drop", _ROW.format(2), "DROP TABLE t"),
    case("create like", "CREATE TABLE u LIKE t", "INSERT INTO u VALUES (3,'a','b',4000000000,'y')"),
    case(
        "create select",
        "CREATE TABLE u AS SELECT id, n, e, a FROM t",
        "INSERT INTO u VALUES (3,4000000000,'x','a')",
        since=(8, 0),
    ),
    case(
        "create select with columns",
        "CREATE TABLE u (z INT UNSIGNED, KEY (id)) AS SELECT id, a FROM t",
        "INSERT INTO u VALUES (4000000000,3,'a')",
        since=(8, 0),
    ),
    case(
        "create or replace",
        _ROW.format(2),
        "CREATE OR REPLACE TABLE t (id INT, b VARCHAR(20), a VARCHAR(20))",
        "INSERT INTO t VALUES (3,'b','a')",
        **_MARIA,
    ),
    case("create if not exists", "CREATE TABLE IF NOT EXISTS t (z INT)", _SAME),
    case(
        "temporary",
        _ROW.format(2),
        "CREATE TEMPORARY TABLE t (z INT)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD y INT",
        "DROP TEMPORARY TABLE t",
        _SAME,
    ),
    case(
        "another session's schema",
        "CREATE TABLE {other}.t (id INT UNSIGNED, a VARCHAR(20))",
        "INSERT INTO {other}.t VALUES (4000000000,'a')",
        "RENAME TABLE {other}.t TO u",
        "INSERT INTO u VALUES (4000000001,'b')",
    ),
    case(
        "drop database",
        "CREATE TABLE {other}.t (id INT, a VARCHAR(20))",
        "INSERT INTO {other}.t VALUES (1,'a')",
        "DROP DATABASE {other}",
        "CREATE DATABASE {other} CHARACTER SET latin1",
        "CREATE TABLE {other}.t (id INT, b VARCHAR(20))",
        "INSERT INTO {other}.t VALUES (1,'ä')",
    ),
    case(
        "alter database",
        "ALTER DATABASE {schema} CHARACTER SET latin1",
        "CREATE TABLE u (id INT, b VARCHAR(20))",
        "INSERT INTO u VALUES (1,'ä')",
        "ALTER DATABASE {schema} CHARACTER SET utf8mb4",
        "ALTER TABLE u ADD c VARCHAR(20)",
        "INSERT INTO u VALUES (1,'ä','ö')",
    ),
    case(
        "exchange partition",
        "INSERT INTO p VALUES (1,'a')",
        "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q",
        "INSERT INTO p VALUES (2,'a')",
        "INSERT INTO q VALUES (3,'a')",
        before=(
            "CREATE TABLE p (id INT UNSIGNED, a VARCHAR(20)) PARTITION BY RANGE (id) "
            "(PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)",
            "CREATE TABLE q (id INT UNSIGNED, a VARCHAR(20))",
        ),
    ),
    # Modes of a session
    case(
        "ansi quotes",
        "SET sql_mode='ANSI_QUOTES'",
        'ALTER TABLE t CHANGE a "c d" VARCHAR(20)',
        "INSERT INTO t VALUES (3,'a','b',1,'x')",
    ),
    case(
        "names beyond U+FFFF",
        "ALTER TABLE t CHANGE a `c\U0001f600` VARCHAR(20)",
        "INSERT INTO t VALUES (3,'a','b',1,'x')",
        "CREATE TABLE `q\U0001f600` (`\U0001f600` INT UNSIGNED, a VARCHAR(20))",
        "INSERT INTO `q?` VALUES (4000000000, 'a')",
        families=(MYSQL,),
    ),
    case(
        "real as float",
        "SET sql_mode='REAL_AS_FLOAT'",
        "ALTER TABLE t ADD r REAL",
        "INSERT INTO t VALUES (3,'a','b',1,'x',1.5)",
    ),
    case(
        "no backslash escapes",
        "SET sql_mode='NO_BACKSLASH_ESCAPES'",
        "ALTER TABLE t MODIFY e ENUM('x','y','\\')",
        "INSERT INTO t VALUES (3,'a','b',1,'\\')",
    ),
    case(
        "default schema elsewhere",
        "USE {other}",
        "ALTER TABLE {schema}.t DROP a",
        "INSERT INTO {schema}.t VALUES (3,'b',1,'x')",
        "USE {schema}",
    ),
    # Online schema changes
    case(
        "gh-ost",
        _ROW.format(2),
        "create /* gh-ost */ table `{schema}`.`_t_gho` like `{schema}`.`t`",
        "alter /* gh-ost */ table `{schema}`.`_t_gho` drop column a, add c int unsigned after id",
        "INSERT INTO _t_gho (id, b, n, e) SELECT id, b, n, e FROM t WHERE id = 1",
        "INSERT INTO _t_gho (id, b, n, e) SELECT id, b, n, e FROM t WHERE id = 2",
        "create /* gh-ost */ table `{schema}`.`_t_del` (id int auto_increment primary key) engine=InnoDB "
        "comment='ghost-cut-over-sentry'",
        "drop /* gh-ost */ table if exists `{schema}`.`_t_del`",
        "rename /* gh-ost */ table `{schema}`.`t` to `{schema}`.`_t_del`, `{schema}`.`_t_gho` to `{schema}`.`t`",
        "INSERT INTO t VALUES (3,4000000000,'b',1,'x')",
        "drop /* gh-ost */ table if exists `{schema}`.`_t_del`",
        "INSERT INTO t VALUES (4,4000000000,'b',1,'x')",
    ),
    case(
        "several times",
        _ROW.format(2),
        "ALTER TABLE t CHANGE a c VARCHAR(20)",
        "INSERT INTO t VALUES (3,'c','b',1,'x')",
        "ALTER TABLE t CHANGE b a VARCHAR(20)",
        "INSERT INTO t VALUES (4,'c','a',1,'x')",
        "ALTER TABLE t DROP c, ADD c VARCHAR(20) AFTER a",
        "INSERT INTO t VALUES (5,'a','c',1,'x')",
        "UPDATE t SET a = 'changed' WHERE id = 5",
    ),
    case("sequence", "CREATE SEQUENCE s", "SELECT NEXTVAL(s)", "DROP SEQUENCE s", _SAME, families=(MARIADB,)),
    case("view", "CREATE VIEW v AS SELECT a AS b, b AS a FROM t", _SAME, "DROP VIEW v", _ROW.format(4)),
)
