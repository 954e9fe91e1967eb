"""Column definitions, and the shapes that servers make of them: facts of MySQL 5.6, 9.7, MariaDB 10.11 and 11.8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replica.sql.dialect import MAXDB, ORACLE, REAL_AS_FLOAT, Dialect
from tests.support.shape_text import MARIADB, MYSQL, MYSQL56, column_text, columns_text, reason_of, shape_of


def made(definition: str, dialect: Dialect = MYSQL, charset: str | None = "utf8mb4") -> str:
    [column] = shape_of(f"CREATE TABLE t (c {definition})", dialect=dialect, charset=charset).columns
    return column_text(column).removeprefix("c ")


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("INT", "int"),
        ("INTEGER UNSIGNED NOT NULL", "int unsigned NOT NULL"),
        ("INT(5) ZEROFILL", "int unsigned zerofill"),
        ("INT SIGNED UNSIGNED", "int unsigned"),
        ("BOOL", "tinyint"),
        ("INT1", "tinyint"),
        ("MIDDLEINT", "mediumint"),
        ("INT8 AUTO_INCREMENT", "bigint NOT NULL"),
        ("INT AUTO_INCREMENT NULL", "int"),
        ("INT NOT NULL NULL", "int"),
        ("INT NULL NOT NULL", "int NOT NULL"),
        ("SERIAL", "bigint unsigned NOT NULL"),
        ("BIGINT SERIAL DEFAULT VALUE", "bigint NOT NULL"),
        ("INT PRIMARY KEY", "int NOT NULL"),
        ("INT KEY COMMENT 'NOT NULL'", "int NOT NULL"),
        ("DECIMAL", "decimal(10,0)"),
        ("DEC(0)", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"),
        ("NUMERIC(19.9)", "decimal(19,0)"),
        ("FIXED(3,1) UNSIGNED", "decimal(3,1) unsigned"),
        ("FLOAT(0)", "float"),
        ("FLOAT(24)", "float"),
        ("FLOAT(25)", "double"),
        ("FLOAT(53,10)", "float"),
        ("FLOAT4", "float"),
        ("DOUBLE PRECISION (5,2) UNSIGNED", "double unsigned"),
        ("REAL", "double"),
        ("BIT", "bit(1)"),
        ("BIT(0)", "bit(1)"),
        ("YEAR(4)", "year"),
        ("TIME(0)", "time"),
        ("DATETIME(3) DEFAULT NOW(3) ON UPDATE NOW(3)", "datetime(3)"),
        ("TIMESTAMP(6)", "timestamp(6)"),
        ("CHAR", "char(1) utf8mb4"),
        ("CHARACTER VARYING(7)", "varchar(7) utf8mb4"),
        ("NCHAR(3)", "char(3) utf8mb3"),
        ("NVARCHAR(3)", "varchar(3) utf8mb3"),
        ("NATIONAL CHARACTER VARYING(3)", "varchar(3) utf8mb3"),
        ("NCHAR VARCHAR(3)", "varchar(3) utf8mb3"),
        ("CHAR(3) BYTE", "binary(3)"),
        ("CHAR(3) ASCII BINARY", "char(3) latin1"),
        ("CHAR(3) BINARY UNICODE", "char(3) ucs2"),
        ("VARCHAR(4) CHARSET BINARY", "varbinary(4)"),
        ("TINYTEXT CHARACTER SET binary", "tinyblob"),
        ("VARCHAR(4) CHARACTER SET 'utf8' COLLATE `utf8_bin`", "varchar(4) utf8mb3"),
        ("VARCHAR(4) NOT NULL COLLATE latin1_bin DEFAULT _utf8'a'", "varchar(4) latin1 NOT NULL"),
        ("VARCHAR(4) COLLATE uca1400_ai_ci", "varchar(4) utf8mb4"),
        ("LONG", "mediumtext utf8mb4"),
        ("LONG VARCHAR CHARSET greek", "mediumtext greek"),
        ("LONG VARBINARY", "mediumblob"),
        ("LONG CHAR VARYING", "mediumtext utf8mb4"),
        ("TEXT(63)", "tinytext utf8mb4"),
        ("TEXT(64)", "text utf8mb4"),
        ("TEXT(70000)", "mediumtext utf8mb4"),
        ("BLOB(255)", "tinyblob"),
        ("BLOB(16777216)", "longblob"),
        ("VARCHAR(70000) CHARSET latin1", "mediumtext latin1"),
        ("VARCHAR(20000)", "mediumtext utf8mb4"),
        ("VARBINARY(70000)", "mediumblob"),
        (
            "ENUM('a ', 'b''c', 'd\\\\e', \"q'q\", 0x6162, b'01100011')",
            r"enum('a','b''c','d\\e','q''q','ab','c') utf8mb4",
        ),
        ("SET('x ', ' y') CHARSET latin1", "set('x',' y') latin1"),
        ("ENUM('a ') CHARSET binary", "enum('a ') binary"),
        ("ENUM('é') COLLATE latin1_swedish_ci", "enum('é') latin1"),
        ("ENUM('日', 0x8ABF) CHARSET sjis", "enum('日','漢') sjis"),
        ("ENUM('a', 'it\\'s', 'x,y)')", r"enum('a','it''s','x,y)') utf8mb4"),
        ("JSON", "json"),
        ("VECTOR(3)", "vector(3)"),
        ("VECTOR", "vector(2048)"),
        ("POINT NOT NULL SRID 4326", "point NOT NULL"),
        ("GEOMCOLLECTION", "geometrycollection"),
        ("INT AS (a + ')')", "int VIRTUAL"),
        ("INT GENERATED ALWAYS AS (1) STORED NOT NULL", "int NOT NULL STORED"),
        ("INT DEFAULT (1 + (2)) INVISIBLE", "int INVISIBLE"),
        ("INT DEFAULT -1.5e-3 CHECK (c > 1) NOT ENFORCED", "int"),
        ("INT CONSTRAINT x CHECK (c > 1) REFERENCES u (a) ON DELETE SET NULL", "int"),
        ("INT COLUMN_FORMAT FIXED STORAGE DISK ENGINE_ATTRIBUTE = '{}' NOT SECONDARY", "int"),
        ("INT DEFAULT 'a' 'b' UNIQUE KEY", "int"),
    ],
)
def test_a_definition(definition: str, expected: str) -> None:
    assert made(definition) == expected


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("JSON", "longtext utf8mb4"),
        ("UUID", "uuid"),
        ("INET6 DEFAULT '::'", "inet6"),
        ("VECTOR(3) NOT NULL", "vector(3) NOT NULL"),
        ("TEXT COMPRESSED", "text utf8mb4 COMPRESSED"),
        ("VARCHAR(9) COMPRESSED=zlib", "varchar(9) utf8mb4 COMPRESSED"),
        ("VARCHAR(9) /*!100301 COMPRESSED*/", "varchar(9) utf8mb4 COMPRESSED"),
        ("VARCHAR(9) /*M!100301 COMPRESSED*/", "varchar(9) utf8mb4 COMPRESSED"),
        ("INT DEFAULT uuid_short()", "int"),
        ("INT DEFAULT NEXT VALUE FOR shop.s", "int"),
        ("INT PERSISTENT = 1", "int"),
        ("INT AS (1) PERSISTENT", "int STORED"),
        ("POINT REF_SYSTEM_ID=4326", "point"),
        ("INT WITHOUT SYSTEM VERSIONING", "int"),
    ],
)
def test_a_definition_of_mariadb(definition: str, expected: str) -> None:
    assert made(definition, MARIADB) == expected


def test_mysql_reads_no_comments_of_mariadb() -> None:
    assert made("VARCHAR(9) /*M!100301 COMPRESSED*/") == "varchar(9) utf8mb4"


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("DATE", "datetime"),
        ("mariadb_schema.DATE", "date"),
        ("NUMBER", "double"),
        ("NUMBER(5,2)", "decimal(5,2)"),
        ("VARCHAR2(5)", "varchar(5) utf8mb4"),
        ("RAW(5)", "varbinary(5)"),
        ("CLOB", "longtext utf8mb4"),
        ("BLOB", "longblob"),
    ],
)
def test_sql_mode_oracle(definition: str, expected: str) -> None:
    assert made(definition, replace(MARIADB, sql_mode=ORACLE)) == expected


def test_other_sql_modes() -> None:
    assert made("REAL", replace(MYSQL, sql_mode=REAL_AS_FLOAT)) == "float"
    assert made("TIMESTAMP", replace(MYSQL56, sql_mode=MAXDB)) == "datetime"


@pytest.mark.parametrize(
    ("definition", "explicit", "expected"),
    [
        ("TIMESTAMP", True, "timestamp"),
        ("TIMESTAMP", False, "timestamp NOT NULL"),
        ("TIMESTAMP", None, "timestamp NULL?"),
        ("TIMESTAMP NULL", False, "timestamp"),
        ("TIMESTAMP NOT NULL", None, "timestamp NOT NULL"),
        ("DATETIME", False, "datetime"),
    ],
)
def test_timestamps(definition: str, explicit: bool | None, expected: str) -> None:
    assert made(definition, replace(MYSQL56, explicit_timestamps=explicit)) == expected


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("SDO_GEOMETRY", "unknown type SDO_GEOMETRY of column c"),
        ("VARCHAR", "a varchar without a length"),
        ("CHAR(256)", "a char of 256"),
        ("TIME(7)", "a time of 7 fractional digits"),
        ("VARCHAR(3) CHARSET klingon", "unknown character set klingon"),
        ("TEXT(0)", "no length"),
        ("INT MASKED WITH x", "unknown attribute MASKED of column c"),
        ("UUID", "unknown type UUID"),
    ],
)
def test_what_is_not_known(definition: str, reason: str) -> None:
    assert reason in reason_of(f"CREATE TABLE t (c {definition})")


def test_a_default_character_set_that_is_not_known() -> None:
    assert made("INT", charset=None) == "int"
    assert made("CHAR CHARSET latin1", charset=None) == "char(1) latin1"
    assert made("CHAR NOT NULL", charset=None) == "NOT NULL"


@pytest.mark.parametrize(
    "definition",
    [
        "ENUM('日') CHARSET latin1",
        "ENUM('💾') CHARSET ujis",
        "ENUM(x'00e4') CHARSET ucs2",
        "SET(0xFFFF)",
    ],
)
def test_labels_that_a_character_set_may_lack_make_one_column_unknown(definition: str) -> None:
    """All columns of the table were, and stayed so behind later statements."""
    create = f"CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, c {definition}, d CHAR(3), UNIQUE (c))"
    shape = shape_of(create, "ALTER TABLE t ADD e INT AFTER C, DROP d")
    assert columns_text(shape) == "id int unsigned NOT NULL, c, e int"
    assert shape.primary_key == ("id",)
    assert not shape.is_whole
    assert shape_of(create, "ALTER TABLE t MODIFY c INT").is_whole
