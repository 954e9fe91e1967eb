"""The clauses of ALTER TABLE, read from tokens.

Sources: sql_yacc.yy of MySQL 5.6 to 9.7 (``alter_commands``, ``alter_list_item``) and MariaDB 11.8
(``alter_commands``, ``alter_list_item``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from protocol.records import replace

from .column_clauses import read_charset_option, read_column, read_default
from .ddl_statements import (
    AddColumn,
    AddKey,
    AddPeriod,
    AddVersioning,
    AlterClause,
    AlterDefault,
    AlterVisibility,
    ChangeColumn,
    ChangePartitions,
    CharsetClause,
    ConvertCharset,
    DropColumn,
    DropKey,
    DropPeriod,
    DropVersioning,
    KeepColumns,
    KeyClause,
    Position,
    RenameColumn,
    RenameKey,
    RenameTo,
    SetOptions,
    TableOptions,
)
from .table_clauses import begins_key, read_key, read_option, read_period
from .token_reader import TokenReader

_PARTITION_WORDS: Final = """
    ADD DROP REORGANIZE COALESCE TRUNCATE EXCHANGE ANALYZE CHECK OPTIMIZE REBUILD REPAIR DISCARD IMPORT CONVERT
"""
_BEFORE_PARTITION: Final = frozenset(_PARTITION_WORDS.split())


def read_clauses(reader: TokenReader) -> Iterator[AlterClause]:
    """All clauses behind the table's name, up to the end of the statement."""
    if _skip_wait(reader) or not reader.at_end:
        while not reader.at_end:
            if reader.peek().upper in _BEFORE_PARTITION and reader.peek(1).upper == "PARTITION":
                yield from _read_partitions(reader)
                return
            if not _begins_partitioning(reader):
                yield from _read_clause(reader)
            if _begins_partitioning(reader):
                yield ChangePartitions(f"{reader.next().upper} {reader.next().upper}")
                reader.pass_rest()
                return
            if not reader.skip(",") and not reader.at_end:
                raise reader.unreadable()


def _skip_wait(reader: TokenReader) -> bool:
    if reader.skip("WAIT"):
        reader.number()
        return True
    return reader.skip("NOWAIT")


def skip_wait(reader: TokenReader) -> None:
    """Pass over WAIT n and NOWAIT, which MariaDB takes behind a table's name."""
    _skip_wait(reader)


def _begins_partitioning(reader: TokenReader) -> bool:
    return (
        reader.comes("PARTITION", "BY") or reader.comes("REMOVE", "PARTITIONING") or reader.comes("UPGRADE")
    )


def _read_clause(reader: TokenReader) -> Iterator[AlterClause]:
    read = _CLAUSES.get(reader.peek().upper)
    if read is not None:
        place = reader.place
        reader.next()
        found = list(read(reader))
        if found:
            yield from found
            return
        reader.back(place)
    yield from _read_options(reader)


def _read_options(reader: TokenReader) -> Iterator[AlterClause]:
    options = read_option(reader, TableOptions())
    if options is None:
        raise reader.unreadable()
    while True:
        more = read_option(reader, options)
        if more is None:
            yield SetOptions(options)
            return
        options = more


# Columns and keys.


def _add(reader: TokenReader) -> Iterator[AlterClause]:
    if reader.skip("SYSTEM", "VERSIONING"):
        yield AddVersioning()
    elif reader.comes("PERIOD", "FOR"):
        yield AddPeriod(read_period(reader))
    elif begins_key(reader):
        key = read_key(reader)
        yield KeepColumns("ADD CHECK") if key is None else AddKey(key)
    else:
        reader.skip("COLUMN")
        is_conditional = reader.skip("IF", "NOT", "EXISTS")
        yield from _added_columns(reader, is_conditional=is_conditional)


def _added_columns(reader: TokenReader, *, is_conditional: bool) -> Iterator[AlterClause]:
    if not reader.skip("("):
        column, keys = read_column(reader)
        yield AddColumn(column, _position(reader), is_conditional)
        yield from _column_keys(keys, is_conditional=is_conditional)
        return
    while True:
        if begins_key(reader):
            key = read_key(reader)
            if key is not None:
                yield AddKey(key)
        elif reader.comes("PERIOD", "FOR"):
            yield AddPeriod(read_period(reader))
        else:
            column, keys = read_column(reader)
            yield AddColumn(column, None, is_conditional)
            yield from _column_keys(keys, is_conditional=is_conditional)
        if not reader.skip(","):
            reader.expect(")")
            return


def _column_keys(keys: Sequence[KeyClause], *, is_conditional: bool) -> Iterator[AlterClause]:
    """Keys that a column's definition brings; IF [NOT] EXISTS of the column is theirs, too."""
    for key in keys:
        yield AddKey(replace(key, is_conditional=is_conditional))


def _position(reader: TokenReader) -> Position | None:
    if reader.skip("FIRST"):
        return Position()
    return Position(reader.column_name()) if reader.skip("AFTER") else None


def _change(reader: TokenReader) -> Iterator[AlterClause]:
    reader.skip("COLUMN")
    is_conditional = reader.skip("IF", "EXISTS")
    name = reader.column_name()
    column, keys = read_column(reader)
    yield ChangeColumn(name, column, _position(reader), is_conditional)
    yield from _column_keys(keys, is_conditional=is_conditional)


def _modify(reader: TokenReader) -> Iterator[AlterClause]:
    reader.skip("COLUMN")
    is_conditional = reader.skip("IF", "EXISTS")
    column, keys = read_column(reader)
    yield ChangeColumn(column.name, column, _position(reader), is_conditional)
    yield from _column_keys(keys, is_conditional=is_conditional)


def _drop(reader: TokenReader) -> Iterator[AlterClause]:
    if reader.skip("SYSTEM", "VERSIONING"):
        yield DropVersioning()
    elif reader.skip("PERIOD", "FOR"):
        yield DropPeriod("" if reader.skip("SYSTEM_TIME") else reader.name())
    elif reader.skip("PRIMARY", "KEY"):
        yield DropKey("PRIMARY")
    elif reader.one_of("INDEX", "KEY"):
        is_conditional = reader.skip("IF", "EXISTS")
        yield DropKey(reader.name(), is_conditional)
    elif reader.skip("CONSTRAINT"):
        is_conditional = reader.skip("IF", "EXISTS")
        yield DropKey(reader.column_name(), is_conditional, is_constraint=True)
    elif reader.skip("FOREIGN", "KEY") or reader.skip("CHECK"):
        reader.skip("IF", "EXISTS")
        reader.column_name()
        yield KeepColumns("DROP FOREIGN KEY")
    else:
        reader.skip("COLUMN")
        is_conditional = reader.skip("IF", "EXISTS")
        yield DropColumn(reader.column_name(), is_conditional)
        reader.one_of("RESTRICT", "CASCADE")


def _rename(reader: TokenReader) -> Iterator[AlterClause]:
    if reader.skip("COLUMN"):
        is_conditional = reader.skip("IF", "EXISTS")
        name = reader.column_name()
        reader.expect("TO")
        yield RenameColumn(name, reader.column_name(), is_conditional)
    elif reader.one_of("INDEX", "KEY"):
        reader.skip("IF", "EXISTS")
        name = reader.name()
        reader.expect("TO")
        yield RenameKey(name, reader.name())
    else:
        reader.one_of("TO", "AS", "=")
        yield RenameTo(reader.table_name())


def _alter(reader: TokenReader) -> Iterator[AlterClause]:
    if reader.one_of("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        reader.skip("IF", "EXISTS")
        reader.name()
        reader.skip("NOT")
        if not reader.one_of("VISIBLE", "INVISIBLE", "ENFORCED", "IGNORED"):
            raise reader.unreadable()
        yield KeepColumns("ALTER INDEX")
        return
    reader.skip("COLUMN")
    reader.skip("IF", "EXISTS")
    name = reader.column_name()
    if reader.skip("DROP", "DEFAULT"):
        yield AlterDefault(name, None)
    elif reader.skip("SET", "DEFAULT"):
        yield AlterDefault(name, read_default(reader))
    else:
        reader.expect("SET")
        word = reader.one_of("VISIBLE", "INVISIBLE")
        if not word:
            raise reader.unreadable()
        yield AlterVisibility(name, word == "VISIBLE")


# The table as a whole.


def _convert(reader: TokenReader) -> Iterator[AlterClause]:
    if reader.comes("PARTITION") or reader.comes("TABLE"):
        yield from _convert_table(reader)
        return
    reader.expect("TO")
    charset = read_charset_option(reader, CharsetClause())
    if charset is None or charset.charset is None:
        raise reader.unreadable()
    if reader.skip("COLLATE"):
        charset = CharsetClause(charset.charset, reader.word_or_text().lower())
    yield ConvertCharset(charset)


def _convert_table(reader: TokenReader) -> Iterator[AlterClause]:
    """MariaDB 10.7: CONVERT PARTITION p TO TABLE t; CONVERT TABLE t TO PARTITION p."""
    if reader.skip("TABLE"):
        yield ChangePartitions("CONVERT TABLE", reader.table_name())
    else:
        reader.expect("PARTITION")
        reader.name()
        reader.expect("TO", "TABLE")
        yield ChangePartitions("CONVERT PARTITION", reader.table_name())
    reader.pass_rest()


def _read_partitions(reader: TokenReader) -> Iterator[AlterClause]:
    """A clause that begins with a word and PARTITION; it stands alone."""
    word = reader.next().upper
    if word == "CONVERT":
        yield from _convert_table(reader)
        return
    reader.next()
    table = None
    if word == "EXCHANGE":
        reader.name()
        reader.expect("WITH", "TABLE")
        table = reader.table_name()
    yield ChangePartitions(f"{word} PARTITION", table)
    reader.pass_rest()


def _tablespace(word: str) -> Callable[[TokenReader], Iterator[AlterClause]]:
    def read(reader: TokenReader) -> Iterator[AlterClause]:
        reader.expect("TABLESPACE")
        yield ChangePartitions(f"{word} TABLESPACE")

    return read


def _order(reader: TokenReader) -> Iterator[AlterClause]:
    """ORDER BY, which stands at the end: its commas are those of the statement."""
    reader.expect("BY")
    reader.pass_rest()
    yield KeepColumns("ORDER BY")


def _keys(reader: TokenReader) -> Iterator[AlterClause]:
    reader.expect("KEYS")
    yield KeepColumns("KEYS")


def _with(reader: TokenReader) -> Iterator[AlterClause]:
    """WITH VALIDATION; WITH SYSTEM VERSIONING is an option of the table."""
    if reader.skip("VALIDATION"):
        yield KeepColumns("VALIDATION")


def _value(reader: TokenReader) -> Iterator[AlterClause]:
    reader.skip("=")
    reader.name()
    yield KeepColumns("ALGORITHM")


def _alone(reader: TokenReader) -> Iterator[AlterClause]:
    yield KeepColumns("FORCE")


_CLAUSES: Final[Mapping[str, Callable[[TokenReader], Iterator[AlterClause]]]] = MappingProxyType(
    {
        "ADD": _add,
        "CHANGE": _change,
        "MODIFY": _modify,
        "DROP": _drop,
        "RENAME": _rename,
        "ALTER": _alter,
        "CONVERT": _convert,
        "ORDER": _order,
        "ENABLE": _keys,
        "DISABLE": _keys,
        "ALGORITHM": _value,
        "LOCK": _value,
        "FORCE": _alone,
        "SECONDARY_LOAD": _alone,
        "SECONDARY_UNLOAD": _alone,
        "WITH": _with,
        "WITHOUT": _with,
        "DISCARD": _tablespace("DISCARD"),
        "IMPORT": _tablespace("IMPORT"),
    }
)
