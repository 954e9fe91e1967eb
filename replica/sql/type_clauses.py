"""Types of columns, read from tokens: the many words of DDL become the server's own.

Sources: ``type`` in sql_yacc.yy of MySQL 5.6 to 9.7, ``field_type_all`` of MariaDB 11.8; sql_mode ORACLE and MAXDB
as MariaDB 10.11 and 11.8 and MySQL 5.6 answer them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .ddl_statements import CharsetClause, TypeClause
from .dialect import MAXDB, ORACLE, REAL_AS_FLOAT, Dialect
from .token_reader import TokenReader

# What DDL calls a type -> what the server calls it.
_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "tinyint",
        "BOOLEAN": "tinyint",
        "INT1": "tinyint",
        "INT2": "smallint",
        "INT3": "mediumint",
        "MIDDLEINT": "mediumint",
        "INT4": "int",
        "INTEGER": "int",
        "INT8": "bigint",
        "FLOAT4": "float",
        "FLOAT8": "double",
        "DEC": "decimal",
        "NUMERIC": "decimal",
        "FIXED": "decimal",
        "CHARACTER": "char",
        "VARCHARACTER": "varchar",
        "GEOMCOLLECTION": "geometrycollection",
    }
)
_ORACLE_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {"DATE": "datetime", "VARCHAR2": "varchar", "RAW": "varbinary", "CLOB": "longtext", "BLOB": "longblob"}
)
_TYPE_WORDS: Final = """
    TINYINT SMALLINT MEDIUMINT INT BIGINT DECIMAL FLOAT DOUBLE BIT DATE TIME DATETIME TIMESTAMP YEAR CHAR
    VARCHAR BINARY VARBINARY TINYBLOB BLOB MEDIUMBLOB LONGBLOB TINYTEXT TEXT MEDIUMTEXT LONGTEXT ENUM SET
    JSON VECTOR GEOMETRY POINT LINESTRING POLYGON MULTIPOINT MULTILINESTRING MULTIPOLYGON GEOMETRYCOLLECTION
"""
_TYPES: Final = frozenset(_TYPE_WORDS.split())
_MARIADB_TYPES: Final = frozenset({"UUID", "INET4", "INET6"})
_NATIONAL: Final = CharsetClause("utf8mb3")
_FLOAT_DIGITS: Final = 24


def read_type(reader: TokenReader) -> TypeClause:
    """A type with its brackets, its sign and what its own words say of its character set."""
    name, charset = _type_name(reader)
    numbers: tuple[int, ...] = (1,) if name in ("BOOL", "BOOLEAN") else ()
    labels: tuple[str | bytes, ...] = ()
    if reader.comes("("):
        if name in ("ENUM", "SET"):
            labels = _labels(reader)
        else:
            numbers = _numbers(reader)
    unsigned = zerofill = False
    while word := reader.one_of("UNSIGNED", "SIGNED", "ZEROFILL"):
        unsigned = unsigned or word != "SIGNED"
        zerofill = zerofill or word == "ZEROFILL"
    name, numbers = _canonical(name, numbers, reader.dialect)
    return TypeClause(name, numbers, labels, unsigned, zerofill, charset)


def _type_name(reader: TokenReader) -> tuple[str, CharsetClause]:
    token = reader.next()
    name = token.upper
    if token.kind != "word":
        raise reader.unreadable("no type in front of the token")
    if name in ("MARIADB_SCHEMA", "ORACLE_SCHEMA", "MAXDB_SCHEMA") and reader.skip("."):
        name = f"{name.partition('_')[0]}.{reader.next().upper}"
    if name == "DOUBLE":
        reader.skip("PRECISION")
    elif name == "LONG":
        if reader.skip("VARBINARY"):
            return "MEDIUMBLOB", CharsetClause()
        _skip_varying(reader)
        return "MEDIUMTEXT", CharsetClause()
    elif name == "NVARCHAR":
        return "VARCHAR", _NATIONAL
    elif name in ("NCHAR", "NATIONAL"):
        return ("VARCHAR" if _skip_varying(reader) else "CHAR"), _NATIONAL
    elif name in ("CHAR", "CHARACTER") and reader.skip("VARYING"):
        name = "VARCHAR"
    return name, CharsetClause()


def _skip_varying(reader: TokenReader) -> bool:
    """Pass over what follows LONG, NATIONAL and NCHAR; whether it says VARCHAR in some way."""
    if reader.one_of("VARCHAR", "VARCHARACTER"):
        return True
    reader.one_of("CHAR", "CHARACTER")
    return reader.skip("VARYING")


def _canonical(name: str, numbers: tuple[int, ...], dialect: Dialect) -> tuple[str, tuple[int, ...]]:
    """The server's word for a type, and its numbers; raises ``UnreadableError`` through ``_known`` for others."""
    owner, _, plain = name.rpartition(".")
    if owner != "MARIADB" and dialect.is_mariadb and (owner == "ORACLE" or dialect.has(ORACLE)):
        if plain == "NUMBER":
            return ("decimal", numbers) if numbers else ("double", ())
        if plain in _ORACLE_SYNONYMS:
            return _ORACLE_SYNONYMS[plain], numbers
    if plain == "TIMESTAMP" and owner != "MARIADB" and (owner == "MAXDB" or dialect.has(MAXDB)):
        return "datetime", numbers
    if plain == "REAL":
        return ("float" if dialect.has(REAL_AS_FLOAT) else "double"), numbers
    if plain in ("FLOAT", "FLOAT4") and len(numbers) == 1:
        return ("float" if numbers[0] <= _FLOAT_DIGITS else "double"), ()
    if plain in _SYNONYMS:
        return _SYNONYMS[plain], numbers
    if plain in _TYPES or (dialect.is_mariadb and plain in _MARIADB_TYPES):
        return plain.lower(), numbers
    # No shape can be made of it: the column's type is told when the shape is made.
    return f"?{name}", numbers


def _numbers(reader: TokenReader) -> tuple[int, ...]:
    reader.expect("(")
    numbers = [_length(reader)]
    while reader.skip(","):
        numbers.append(reader.number())
    reader.expect(")")
    return tuple(numbers)


def _length(reader: TokenReader) -> int:
    """Servers take a fraction, too, and make nothing of it: DECIMAL(19.9) is DECIMAL(19)."""
    token = reader.peek()
    if token.kind != "number":
        return reader.number()
    reader.next()
    return int(token.text.partition(".")[0])


def _labels(reader: TokenReader) -> tuple[str | bytes, ...]:
    reader.expect("(")
    labels = [_label(reader)]
    while reader.skip(","):
        labels.append(_label(reader))
    reader.expect(")")
    return tuple(labels)


def _label(reader: TokenReader) -> str | bytes:
    token = reader.next()
    if token.kind == "text":
        return token.value
    if token.kind == "hex":
        digits = token.text[2:].rstrip("'")
        return bytes.fromhex("0" * (len(digits) % 2) + digits)
    if token.kind == "bits":
        digits = token.text[2:].rstrip("'")
        return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "big")
    raise reader.unreadable("no label in front of the token")
