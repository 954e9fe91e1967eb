"""Keys, options and the list of columns of CREATE TABLE, read from tokens; ALTER TABLE uses them, too.

Sources: sql_yacc.yy of MySQL 5.6 to 9.7 (``table_element``, ``create_table_option``) and MariaDB 11.8.
"""

from typing import Final

from protocol.records import field, record, replace

from .column_clauses import pass_reference, read_charset_option, read_column
from .ddl_statements import (
    ColumnClause,
    KeyClause,
    KeyKind,
    KeyPart,
    PeriodClause,
    TableOptions,
)
from .token_reader import TokenReader
from .words import END

_KEY_WORDS: Final = frozenset(
    {"CONSTRAINT", "PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"}
)
_KINDS: Final[dict[str, KeyKind]] = {
    "UNIQUE": "unique",
    "FULLTEXT": "fulltext",
    "SPATIAL": "spatial",
    "VECTOR": "vector",
    "INDEX": "index",
    "KEY": "index",
}
# Options of a table with one value, behind an equals sign or without.
_OPTION_WORDS: Final = """
    AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMMENT COMPRESSION CONNECTION DELAY_KEY_WRITE
    ENCRYPTION INSERT_METHOD KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PASSWORD ROW_FORMAT
    STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES TABLESPACE STORAGE SECONDARY_ENGINE
    ENGINE_ATTRIBUTE SECONDARY_ENGINE_ATTRIBUTE AUTOEXTEND_SIZE PAGE_CHECKSUM TRANSACTIONAL SEQUENCE
    NODEGROUP IETF_QUOTES
"""
_VALUE_OPTIONS: Final = frozenset(_OPTION_WORDS.split())


@record(slots=True)
class TableBody:
    """The clauses in the brackets of CREATE TABLE."""

    columns: list[ColumnClause] = field(default_factory=list)
    keys: list[KeyClause] = field(default_factory=list)
    periods: list[PeriodClause] = field(default_factory=list)


def read_body(reader: TokenReader) -> TableBody:
    """The list of columns, keys and constraints, with its brackets."""
    body = TableBody()
    reader.expect("(")
    while True:
        if reader.comes("PERIOD", "FOR"):
            body.periods.append(read_period(reader))
        elif begins_key(reader):
            key = read_key(reader)
            if key is not None:
                body.keys.append(key)
        else:
            column, keys = read_column(reader)
            body.columns.append(column)
            body.keys += keys
        if not reader.skip(","):
            reader.expect(")")
            return body


def read_period(reader: TokenReader) -> PeriodClause:
    """PERIOD FOR name (start, end)."""
    reader.expect("PERIOD", "FOR")
    name = "" if reader.skip("SYSTEM_TIME") else reader.name()
    reader.expect("(")
    start = reader.name()
    reader.expect(",")
    end = reader.name()
    reader.expect(")")
    return PeriodClause(name, start, end)


# Keys.


def begins_key(reader: TokenReader) -> bool:
    """Whether a key or a constraint comes, and no column."""
    return (
        reader.peek().upper in _KEY_WORDS or reader.comes("VECTOR", "INDEX") or reader.comes("VECTOR", "KEY")
    )


def read_key(reader: TokenReader) -> KeyClause | None:
    """A key; None for a CHECK constraint."""
    constraint = _constraint_name(reader)
    if reader.skip("CHECK"):
        reader.brackets()
        reader.skip("NOT")
        reader.skip("ENFORCED")
        return None
    if reader.skip("FOREIGN", "KEY"):
        return _foreign_key(reader, constraint)
    if reader.skip("PRIMARY", "KEY"):
        return replace(_read_key_rest(reader, "primary"), name="PRIMARY")
    word = reader.one_of(*_KINDS)
    if not word:
        raise reader.unreadable("unknown kind of key")
    reader.one_of("INDEX", "KEY")
    key = _read_key_rest(reader, _KINDS[word])
    return replace(key, name=key.name or constraint) if key.kind == "unique" else key


def _constraint_name(reader: TokenReader) -> str:
    if not reader.skip("CONSTRAINT"):
        return ""
    reader.skip("IF", "NOT", "EXISTS")
    return "" if reader.peek().upper in _KEY_WORDS else reader.column_name()


def _foreign_key(reader: TokenReader, constraint: str) -> KeyClause:
    is_conditional = reader.skip("IF", "NOT", "EXISTS")
    name = "" if reader.comes("(") else reader.name()
    parts, _ = _parts(reader)
    reader.expect("REFERENCES")
    pass_reference(reader)
    return KeyClause("foreign", constraint or name, parts, is_conditional=is_conditional)


def _read_key_rest(reader: TokenReader, kind: KeyKind) -> KeyClause:
    is_conditional = reader.skip("IF", "NOT", "EXISTS")
    name = "" if reader.comes("(") or _begins_method(reader) else reader.name()
    method = read_method(reader)
    key = read_parts(reader, KeyClause(kind, name, is_conditional=is_conditional))
    return replace(key, method=key.method or method)


def read_parts(reader: TokenReader, key: KeyClause) -> KeyClause:
    """The key with its columns and the options behind them."""
    parts, period = _parts(reader)
    return replace(key, parts=parts, period=period, method=_key_options(reader))


def _begins_method(reader: TokenReader) -> bool:
    return reader.peek().upper in ("USING", "TYPE") and reader.peek(1).upper in ("BTREE", "HASH", "RTREE")


def read_method(reader: TokenReader) -> str:
    """USING BTREE, HASH or RTREE; empty if it does not come."""
    if not _begins_method(reader):
        return ""
    reader.next()
    return reader.next().upper


def _parts(reader: TokenReader) -> tuple[tuple[KeyPart, ...], str]:
    """The columns of a key, and the period that WITHOUT OVERLAPS names."""
    parts, period = [], ""
    reader.expect("(")
    while True:
        if reader.comes("("):
            reader.brackets()
            parts.append(KeyPart(""))
        else:
            name = reader.column_name()
            if reader.skip("WITHOUT", "OVERLAPS"):
                period = name
            else:
                parts.append(KeyPart(name, _prefix_length(reader)))
        reader.one_of("ASC", "DESC")
        if not reader.skip(","):
            reader.expect(")")
            return tuple(parts), period


def _prefix_length(reader: TokenReader) -> int:
    if not reader.skip("("):
        return 0
    length = reader.number()
    reader.expect(")")
    return length


def _key_options(reader: TokenReader) -> str:
    """Pass over the options behind a key; return the method, which may stand there."""
    method = ""
    while True:
        if _begins_method(reader):
            method = read_method(reader)
        elif reader.skip("WITH", "PARSER"):
            reader.name()
        elif reader.comes("NOT", "IGNORED"):
            reader.next()
            reader.next()
        elif reader.one_of("VISIBLE", "INVISIBLE", "IGNORED", "CLUSTERED"):
            pass
        elif reader.one_of("COMMENT", "KEY_BLOCK_SIZE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
            reader.skip("=")
            reader.next()
        elif reader.peek().kind in ("word", "name") and reader.peek(1).upper == "=":
            reader.next()
            reader.next()
            reader.next()
        else:
            return method


# Options.


def read_option(reader: TokenReader, options: TableOptions) -> TableOptions | None:
    """One option of a table, added to others; None if none comes."""
    charset = read_charset_option(reader, options.charset)
    if charset is not None:
        return replace(options, charset=charset)
    if reader.one_of("ENGINE", "TYPE"):
        reader.skip("=")
        return replace(options, engine=reader.word_or_text().lower())
    if reader.skip("WITH", "SYSTEM", "VERSIONING"):
        return replace(options, is_versioned=True)
    if reader.skip("START", "TRANSACTION"):
        return options
    if reader.skip("UNION"):
        reader.skip("=")
        reader.brackets()
        return options
    if reader.skip("DATA", "DIRECTORY") or reader.skip("INDEX", "DIRECTORY"):
        return _passed_value(reader, options)
    # Besides those of the list: options that engines of MariaDB define.
    is_value = reader.peek().upper in _VALUE_OPTIONS
    if is_value or (reader.peek().kind in ("word", "name") and reader.peek(1).upper == "="):
        reader.next()
        return _passed_value(reader, options)
    return None


def _passed_value(reader: TokenReader, options: TableOptions) -> TableOptions:
    reader.skip("=")
    if reader.next() is END:
        raise reader.unreadable("no value of an option")
    return options
