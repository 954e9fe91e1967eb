"""What a statement of the log does to tables, as its text says it: no defaults of the server are filled in.

``ddl_reader.read_statement`` makes these. What they mean for a table's columns is told by ``replica.schemas``.
"""

from typing import Literal

from protocol.records import record

from .token_reader import TableName

#: What stands for a character set where DDL says DEFAULT.
DEFAULT = "DEFAULT"

Generated = Literal["", "virtual", "stored"]
KeyKind = Literal["primary", "unique", "index", "fulltext", "spatial", "vector", "foreign"]


@record(slots=True, frozen=True)
class CharsetClause:
    """CHARACTER SET and COLLATE as they are written, in small letters; None where they are not."""

    charset: str | None = None
    collation: str | None = None

    def __bool__(self) -> bool:
        return self.charset is not None or self.collation is not None


@record(slots=True, frozen=True)
class TypeClause:
    """A column's type: ``name`` is the server's own word for it in small letters (``int`` for INTEGER).

    ``numbers`` stand in the brackets; ``labels`` are those of ENUM and SET: text, or bytes written in hexadecimal.
    ``charset`` is what the type's own words say: NCHAR, ASCII, UNICODE, BYTE.
    """

    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str | bytes, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: CharsetClause = CharsetClause()


@record(slots=True, frozen=True)
class DefaultClause:
    """DEFAULT: ``text`` is a plain literal's value or None for NULL; ``is_filled``: the server computes the value."""

    text: str | None = None
    is_filled: bool = False


@record(slots=True, frozen=True)
class ColumnClause:
    """A column's definition. ``nullable`` is what the last of NULL, NOT NULL, AUTO_INCREMENT and PRIMARY KEY says.

    ``row_period`` is ``start`` or ``end`` for GENERATED ALWAYS AS ROW START and ROW END. ``versioning`` is what WITH
    or WITHOUT SYSTEM VERSIONING say.
    """

    name: str
    type: TypeClause
    nullable: bool | None = None
    default: DefaultClause | None = None
    generated: Generated = ""
    auto_increment: bool = False
    invisible: bool = False
    compressed: bool = False
    row_period: Literal["", "start", "end"] = ""
    versioning: bool | None = None


@record(slots=True, frozen=True)
class KeyPart:
    """A column of a key, with the length of its prefix (0: the whole column). An expression has no name."""

    column: str
    length: int = 0


@record(slots=True, frozen=True)
class KeyClause:
    """A key. ``name`` is empty where the server makes one up. ``method`` is BTREE, HASH or empty.

    ``period`` is named by WITHOUT OVERLAPS. A FOREIGN KEY has the name of the index that the server makes for it.
    """

    kind: KeyKind
    name: str = ""
    parts: tuple[KeyPart, ...] = ()
    method: str = ""
    period: str = ""
    is_conditional: bool = False


@record(slots=True, frozen=True)
class PeriodClause:
    """PERIOD FOR SYSTEM_TIME (no name) or for an application's period."""

    name: str
    start: str
    end: str


@record(slots=True, frozen=True)
class TableOptions:
    """Options of a table that matter here; ``engine`` is in small letters, empty where it is not said."""

    charset: CharsetClause = CharsetClause()
    engine: str = ""
    is_versioned: bool = False


@record(slots=True, frozen=True)
class Position:
    """FIRST (``after`` is None) or AFTER a column."""

    after: str | None = None


# Clauses of ALTER TABLE.


@record(slots=True, frozen=True)
class AddColumn:
    """ADD [COLUMN] [IF NOT EXISTS]; a list in brackets is several."""

    column: ColumnClause
    position: Position | None = None
    is_conditional: bool = False


@record(slots=True, frozen=True)
class ChangeColumn:
    """CHANGE, and MODIFY, where ``name`` is also the new name."""

    name: str
    column: ColumnClause
    position: Position | None = None
    is_conditional: bool = False


@record(slots=True, frozen=True)
class RenameColumn:
    """RENAME COLUMN ... TO."""

    name: str
    new_name: str
    is_conditional: bool = False


@record(slots=True, frozen=True)
class DropColumn:
    """DROP [COLUMN]."""

    name: str
    is_conditional: bool = False


@record(slots=True, frozen=True)
class AlterDefault:
    """ALTER [COLUMN] SET DEFAULT; None for DROP DEFAULT."""

    name: str
    default: DefaultClause | None


@record(slots=True, frozen=True)
class AlterVisibility:
    """ALTER [COLUMN] SET VISIBLE or SET INVISIBLE."""

    name: str
    is_visible: bool


@record(slots=True, frozen=True)
class AddKey:
    """ADD INDEX, KEY, UNIQUE, PRIMARY KEY, FOREIGN KEY; CREATE INDEX."""

    key: KeyClause


@record(slots=True, frozen=True)
class DropKey:
    """DROP INDEX, KEY or PRIMARY KEY (``PRIMARY``). ``is_constraint``: DROP CONSTRAINT, of a key or of a CHECK."""

    name: str
    is_conditional: bool = False
    is_constraint: bool = False


@record(slots=True, frozen=True)
class RenameKey:
    """RENAME INDEX or KEY ... TO."""

    name: str
    new_name: str


@record(slots=True, frozen=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET."""

    charset: CharsetClause


@record(slots=True, frozen=True)
class SetOptions:
    """Options of the table."""

    options: TableOptions


@record(slots=True, frozen=True)
class RenameTo:
    """RENAME TO, within ALTER TABLE."""

    table: TableName


@record(slots=True, frozen=True)
class AddPeriod:
    """ADD PERIOD FOR."""

    period: PeriodClause


@record(slots=True, frozen=True)
class DropPeriod:
    """DROP PERIOD FOR; the name is empty for SYSTEM_TIME."""

    name: str


@record(slots=True, frozen=True)
class AddVersioning:
    """ADD SYSTEM VERSIONING."""


@record(slots=True, frozen=True)
class DropVersioning:
    """DROP SYSTEM VERSIONING."""


@record(slots=True, frozen=True)
class ChangePartitions:
    """A clause about partitions or tablespaces that changes no column: ``words`` are its first two.

    ``table`` is the table of EXCHANGE PARTITION and of CONVERT TABLE (which is then no more) and CONVERT PARTITION
    (which then comes to be).
    """

    words: str
    table: TableName | None = None


@record(slots=True, frozen=True)
class KeepColumns:
    """A clause that changes neither columns nor keys: CHECK, FOREIGN KEY dropped, ENABLE KEYS, ORDER BY, LOCK."""

    words: str


AlterClause = (
    AddColumn
    | ChangeColumn
    | RenameColumn
    | DropColumn
    | AlterDefault
    | AlterVisibility
    | AddKey
    | DropKey
    | RenameKey
    | ConvertCharset
    | SetOptions
    | RenameTo
    | AddPeriod
    | DropPeriod
    | AddVersioning
    | DropVersioning
    | ChangePartitions
    | KeepColumns
)

# Statements.


@record(slots=True, frozen=True)
class CreateTable:
    """CREATE TABLE. ``like`` is the table whose columns it takes. ``has_rows``: SELECT, VALUES or TABLE follow.

    ``keys`` hold the keys that columns define, too, in the order of the text.
    """

    table: TableName
    columns: tuple[ColumnClause, ...] = ()
    keys: tuple[KeyClause, ...] = ()
    periods: tuple[PeriodClause, ...] = ()
    options: TableOptions = TableOptions()
    like: TableName | None = None
    has_rows: bool = False
    is_conditional: bool = False
    is_replaced: bool = False


@record(slots=True, frozen=True)
class CreateTemporary:
    """CREATE TEMPORARY TABLE, which only sessions with another binlog_format than ROW log: it changes no table."""

    table: TableName


@record(slots=True, frozen=True)
class CreateSequence:
    """CREATE SEQUENCE, a table with one row; ``is_plain``: without AS, so that its numbers are BIGINT."""

    table: TableName
    is_plain: bool = True
    is_conditional: bool = False
    is_replaced: bool = False


@record(slots=True, frozen=True)
class DropTables:
    """DROP TABLE, DROP SEQUENCE."""

    tables: tuple[TableName, ...]


@record(slots=True, frozen=True)
class DropViews:
    """DROP VIEW; ``is_conditional``: IF EXISTS, which leaves a table of the name alone."""

    views: tuple[TableName, ...]
    is_conditional: bool = False


@record(slots=True, frozen=True)
class TruncateTable:
    """TRUNCATE, and the DELETE by which MySQL logs that a MEMORY table is empty."""

    table: TableName


@record(slots=True, frozen=True)
class RenameTables:
    """RENAME TABLE: pairs of the old and the new name, done one after another."""

    pairs: tuple[tuple[TableName, TableName], ...]


@record(slots=True, frozen=True)
class AlterTable:
    """ALTER TABLE, CREATE INDEX, DROP INDEX. ``is_lossy``: ALTER IGNORE."""

    table: TableName
    clauses: tuple[AlterClause, ...]
    is_lossy: bool = False


@record(slots=True, frozen=True)
class CreateSchema:
    """CREATE DATABASE."""

    schema: str
    charset: CharsetClause = CharsetClause()
    is_conditional: bool = False
    is_replaced: bool = False


@record(slots=True, frozen=True)
class AlterSchema:
    """ALTER DATABASE."""

    schema: str
    charset: CharsetClause


@record(slots=True, frozen=True)
class DropSchema:
    """DROP DATABASE."""

    schema: str


@record(slots=True, frozen=True)
class Unread:
    """A statement that was not understood: ``reason`` says where; ``tables`` are those that it may change.

    ``is_about_any``: it may change any table, because the name of one could not be read.
    """

    tables: tuple[TableName, ...]
    reason: str
    is_about_any: bool = False


DdlStatement = (
    CreateTable
    | CreateTemporary
    | CreateSequence
    | DropTables
    | DropViews
    | TruncateTable
    | RenameTables
    | AlterTable
    | CreateSchema
    | AlterSchema
    | DropSchema
    | Unread
)


def tables_of(read: DdlStatement) -> tuple[TableName, ...]:
    """The tables that a statement names, as far as it may change them."""
    match read:
        case DropTables() | Unread():
            return read.tables
        case RenameTables():
            return tuple(table for pair in read.pairs for table in pair)
        case AlterTable():
            others = (
                clause.table
                for clause in read.clauses
                if isinstance(clause, RenameTo | ChangePartitions) and clause.table is not None
            )
            return (read.table, *others)
        case CreateTable() | CreateSequence():
            return (read.table,)
        case _:
            return ()
