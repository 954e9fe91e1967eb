"""The one reader of DDL: a statement of the log in, what it does to tables out.

It reads both families' grammars, and never raises: a statement about a table with a clause that it does not know is
``Unread``. Statements that change no table are None, and only their first words are read.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from .alter_clauses import read_clauses, skip_wait
from .column_clauses import read_charset_option
from .ddl_statements import (
    AddKey,
    AlterSchema,
    AlterTable,
    CharsetClause,
    CreateSchema,
    CreateSequence,
    CreateTable,
    CreateTemporary,
    DdlStatement,
    DropKey,
    DropSchema,
    DropTables,
    DropViews,
    KeyClause,
    KeyKind,
    RenameTables,
    TableOptions,
    TruncateTable,
    Unread,
)
from .dialect import Dialect
from .table_clauses import TableBody, read_body, read_method, read_option, read_parts
from .token_reader import TableName, TokenReader, UnreadableError
from .words import END

_KEY_KINDS: Final[Mapping[str, KeyKind]] = MappingProxyType(
    {"UNIQUE": "unique", "FULLTEXT": "fulltext", "SPATIAL": "spatial", "VECTOR": "vector"}
)
# Variables that the meaning of a statement's text depends on.
_READING_SETTINGS: Final = frozenset(
    {"SQL_MODE", "CHARACTER_SET_CLIENT", "CHARACTER_SET_CONNECTION", "COLLATION_CONNECTION", "OLD_MODE"}
)


def read_statement(sql: str, schema: str, dialect: Dialect) -> DdlStatement | None:
    """What a statement does to tables; None if it changes none. ``schema`` is the default schema.

    Of temporary tables, whose rows are not logged, only the names are read, where they are made.
    """
    reader = _Statement(TokenReader(sql, schema, dialect))
    try:
        return reader.read()
    except UnreadableError as error:
        return reader.unread(str(error))
    except (ValueError, RecursionError, OverflowError) as error:
        return reader.unread(f"{type(error).__name__}: {error}")


def may_change_shapes(sql: str, dialect: Dialect) -> bool:
    """Whether a statement may change what columns tables have. Its first words are read, and nothing behind them."""
    try:
        return _verb(TokenReader(sql, "", dialect)) in _OF_SHAPES
    except UnreadableError:
        return False


def _verb(reader: TokenReader) -> str:
    """The first word of a statement, behind the settings that MariaDB may have for this statement alone."""
    if reader.skip("SET", "STATEMENT"):
        _sets_how_to_read(reader)
    return reader.next().upper


def _sets_how_to_read(reader: TokenReader) -> bool:
    """MariaDB: settings for this statement alone; whether it was read with others, which are not logged."""
    found = False
    while not reader.skip("FOR"):
        if reader.comes("("):
            reader.brackets()
            continue
        token = reader.next()
        if token is END:
            return False
        name = token.value.upper().rpartition(".")[2]
        found = found or name in _READING_SETTINGS
    return found


class _Statement:
    """One statement; ``tables`` are those it is about, as far as they have been read.

    ``is_naming``: the name of another one comes.
    """

    def __init__(self, reader: TokenReader) -> None:
        self.reader = reader
        self.tables: list[TableName] = []
        self.is_naming = False

    def unread(self, reason: str) -> Unread | None:
        """The statement as far as it has been read; None if it is about no tables."""
        is_about_tables = self.tables or self.is_naming
        return Unread(tuple(self.tables), reason, self.is_naming) if is_about_tables else None

    def read(self) -> DdlStatement | None:
        reader = self.reader
        is_set = reader.skip("SET", "STATEMENT") and _sets_how_to_read(reader)
        make = _STATEMENTS.get(reader.next().upper)
        read = None if make is None else make(self)
        if is_set and isinstance(read, CreateTable | AlterTable):
            raise reader.unreadable("the statement's own settings are not those that it was read with")
        return read

    def table(self) -> TableName:
        """The next table's name, which is noted."""
        self.is_naming = True
        name = self.reader.table_name()
        self.is_naming = False
        self.tables.append(name)
        return name

    def finish(self) -> None:
        """Nothing else may come."""
        if not self.reader.at_end:
            raise self.reader.unreadable()

    # CREATE.

    def create(self) -> DdlStatement | None:
        reader = self.reader
        is_replaced = reader.skip("OR", "REPLACE")
        if reader.skip("TEMPORARY"):
            return self._create_temporary()
        if reader.skip("TABLE"):
            return self._create_table(is_replaced=is_replaced)
        if reader.skip("SEQUENCE"):
            return self._create_sequence(is_replaced=is_replaced)
        if reader.one_of("DATABASE", "SCHEMA"):
            is_conditional = reader.skip("IF", "NOT", "EXISTS")
            return CreateSchema(reader.schema_name(), self._schema_charset(), is_conditional, is_replaced)
        if reader.comes("EXTERNAL", "TABLE"):
            reader.next()
            reader.next()
            reader.skip("IF", "NOT", "EXISTS")
            self.table()
            raise reader.unreadable("CREATE EXTERNAL TABLE")
        return self._create_index(is_replaced=is_replaced)

    def _create_table(self, *, is_replaced: bool) -> DdlStatement:
        reader = self.reader
        is_conditional = reader.skip("IF", "NOT", "EXISTS")
        table = self.table()
        body, like = TableBody(), None
        if reader.skip("LIKE"):
            like = reader.table_name()
        elif reader.comes("(", "LIKE"):
            reader.skip("(", "LIKE")
            like = reader.table_name()
            reader.expect(")")
        elif reader.comes("(") and not _begins_rows(reader, 1):
            body = read_body(reader)
        options, has_rows = self._create_options()
        return CreateTable(
            table,
            tuple(body.columns),
            tuple(body.keys),
            tuple(body.periods),
            options,
            like,
            has_rows,
            is_conditional,
            is_replaced,
        )

    def _create_temporary(self) -> DdlStatement | None:
        if not self.reader.skip("TABLE"):
            return None
        self.reader.skip("IF", "NOT", "EXISTS")
        return CreateTemporary(self.reader.table_name())

    def _create_options(self) -> tuple[TableOptions, bool]:
        """The options behind the columns; whether a SELECT or the like follows them."""
        reader, options = self.reader, TableOptions()
        while not reader.at_end:
            if reader.comes("PARTITION", "BY"):
                return options, _has_select(reader)
            if reader.one_of("IGNORE", "REPLACE", "AS") or _begins_rows(reader):
                reader.pass_rest()
                return options, True
            more = read_option(reader, options)
            if more is None and not reader.skip(","):
                raise reader.unreadable()
            options = more or options
        return options, False

    def _create_sequence(self, *, is_replaced: bool) -> DdlStatement:
        reader = self.reader
        is_conditional = reader.skip("IF", "NOT", "EXISTS")
        table = self.table()
        is_plain = True
        while (token := reader.next()) is not END:
            is_plain = is_plain and token.upper != "AS"
        return CreateSequence(table, is_plain, is_conditional, is_replaced)

    def _schema_charset(self) -> CharsetClause:
        charset = CharsetClause()
        while not self.reader.at_end:
            more = read_charset_option(self.reader, charset)
            if more is None:
                # COMMENT, ENCRYPTION, READ ONLY: nothing of tables.
                self.reader.next()
            charset = more or charset
        return charset

    def _create_index(self, *, is_replaced: bool) -> DdlStatement | None:
        reader = self.reader
        reader.one_of("ONLINE", "OFFLINE")
        kind = _KEY_KINDS.get(reader.one_of(*_KEY_KINDS), "index")
        if not reader.skip("INDEX"):
            return None
        is_conditional = reader.skip("IF", "NOT", "EXISTS")
        name = reader.name()
        method = read_method(reader)
        reader.expect("ON")
        table = self.table()
        skip_wait(reader)
        key = read_parts(reader, KeyClause(kind, name, is_conditional=is_conditional))
        key = KeyClause(kind, name, key.parts, key.method or method, key.period, is_conditional)
        self._index_options()
        replaced = (DropKey(name, is_conditional=True),) if is_replaced else ()
        return AlterTable(table, (*replaced, AddKey(key)))

    def _index_options(self) -> None:
        while self.reader.one_of("ALGORITHM", "LOCK"):
            self.reader.skip("=")
            self.reader.name()
        self.finish()

    # DROP.

    def drop(self) -> DdlStatement | None:
        reader = self.reader
        if reader.one_of("TABLE", "TABLES", "SEQUENCE"):
            reader.skip("IF", "EXISTS")
            return DropTables(tuple(self._tables()))
        if reader.one_of("DATABASE", "SCHEMA"):
            reader.skip("IF", "EXISTS")
            return DropSchema(reader.schema_name())
        if reader.skip("VIEW"):
            is_conditional = reader.skip("IF", "EXISTS")
            return DropViews(tuple(self._tables()), is_conditional)
        reader.one_of("ONLINE", "OFFLINE")
        if not reader.skip("INDEX"):
            return None
        is_conditional = reader.skip("IF", "EXISTS")
        name = reader.name()
        reader.expect("ON")
        table = self.table()
        skip_wait(reader)
        self._index_options()
        return AlterTable(table, (DropKey(name, is_conditional),))

    def _tables(self) -> list[TableName]:
        """The names of DROP, up to the end."""
        reader = self.reader
        self.table()
        while reader.skip(","):
            self.table()
        skip_wait(reader)
        reader.one_of("RESTRICT", "CASCADE")
        self.finish()
        return self.tables

    # ALTER, RENAME and the rest.

    def alter(self) -> DdlStatement | None:
        reader = self.reader
        if reader.one_of("DATABASE", "SCHEMA"):
            return self._alter_schema()
        if reader.skip("SEQUENCE"):
            return self._alter_sequence()
        is_lossy = False
        while word := reader.one_of("ONLINE", "OFFLINE", "IGNORE"):
            is_lossy = is_lossy or word == "IGNORE"
        if not reader.skip("TABLE"):
            return None
        reader.skip("IF", "EXISTS")
        table = self.table()
        return AlterTable(table, tuple(read_clauses(reader)), is_lossy)

    def _alter_schema(self) -> DdlStatement:
        place = self.reader.place
        charset = read_charset_option(self.reader, CharsetClause())
        self.reader.back(place)
        schema = self.reader.schema if charset else self.reader.schema_name()
        return AlterSchema(schema, self._schema_charset())

    def _alter_sequence(self) -> DdlStatement | None:
        reader = self.reader
        reader.skip("IF", "EXISTS")
        self.table()
        while (token := reader.next()) is not END:
            if token.upper == "AS":
                raise reader.unreadable("ALTER SEQUENCE ... AS")
        return None

    def rename(self) -> DdlStatement | None:
        reader, pairs = self.reader, []
        if not reader.one_of("TABLE", "TABLES"):
            return None
        reader.skip("IF", "EXISTS")
        while True:
            old = self.table()
            skip_wait(reader)
            reader.expect("TO")
            pairs.append((old, self.table()))
            if not reader.skip(","):
                self.finish()
                return RenameTables(tuple(pairs))

    def truncate(self) -> DdlStatement:
        self.reader.skip("TABLE")
        table = self.table()
        skip_wait(self.reader)
        self.finish()
        return TruncateTable(table)

    def delete(self) -> DdlStatement | None:
        """The form in which MySQL logs that a MEMORY table is empty: see ``statement_kind.empties_table``."""
        if not self.reader.skip("FROM") or self.reader.peek().kind not in ("name", "word"):
            return None
        table = self.reader.table_name()
        return TruncateTable(table) if self.reader.at_end else None


def _begins_rows(reader: TokenReader, ahead: int = 0) -> bool:
    """Whether a SELECT, VALUES or TABLE comes, maybe in brackets."""
    while reader.peek(ahead).upper == "(":
        ahead += 1
    word, following = reader.peek(ahead).upper, reader.peek(ahead + 1)
    if word in ("SELECT", "VALUES"):
        return word == "SELECT" or following.upper in ("ROW", "(")
    return (word == "WITH" and following.upper != "SYSTEM") or (word == "TABLE" and following is not END)


def _has_select(reader: TokenReader) -> bool:
    """Whether a SELECT follows behind the definition of partitions, which is passed over."""
    while not reader.at_end:
        if _begins_rows(reader) or reader.one_of("AS", "IGNORE", "REPLACE"):
            reader.pass_rest()
            return True
        if reader.comes("("):
            reader.brackets()
        else:
            reader.next()
    return False


_OF_SHAPES: Final = frozenset({"CREATE", "DROP", "ALTER", "RENAME"})
_STATEMENTS: Final[Mapping[str, Callable[[_Statement], DdlStatement | None]]] = MappingProxyType(
    {
        "CREATE": _Statement.create,
        "DROP": _Statement.drop,
        "ALTER": _Statement.alter,
        "RENAME": _Statement.rename,
        "TRUNCATE": _Statement.truncate,
        "DELETE": _Statement.delete,
    }
)
