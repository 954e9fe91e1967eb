"""The catalog of a source as its information_schema has it now: the queries to send, and what their rows mean.

It asks no server. The rows are valid for a place in the log only if no statement of the log between the low and the
high mark of the reading is about their tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from sys import intern
from typing import Any, Final

from protocol.conversation.results import parse_row
from protocol.errors import ConfigurationError, ProtocolError
from protocol.records import field, record, replace
from protocol.rows.column import repeated_name
from protocol.rows.description import ColumnDescription, labels_of, numbers_of
from protocol.wire import utf8_bytes, utf8_text

from ..sql.token_reader import TableName
from .catalog import Catalog, Unknown
from .charset_names import NO_SHAPE, UnknownShapeError, known
from .column_shapes import LABEL_TYPES, STRING_TYPES
from .hidden_columns import hash_columns, hidden_period
from .key_list import HASH_ENGINES
from .logged_statements import LogTraits
from .shape import ColumnShape, Generated, Key, KeyKind, Role, Shape

#: A row of text, as servers send it.
Row = Sequence[str | None]

#: The values of a row of ``BaselineQueries.columns``, and of ``keys``.
COLUMN_VALUES: Final = 11
KEY_VALUES: Final = 8
# A row begins with the schema and the name of its table.
_NAMED: Final = 2

#: Values of TABLE_TYPE that stand for views.
VIEWS: Final = frozenset({"VIEW", "SYSTEM VIEW"})
_SIZED_TYPES: Final = STRING_TYPES | {"bit", "decimal", "vector", "time", "datetime", "timestamp"}
_HIDDEN_SCHEMAS: Final = "('information_schema', 'performance_schema', 'sys')"
_KINDS: Final[Mapping[str, KeyKind]] = {
    "FULLTEXT": "fulltext",
    "SPATIAL": "spatial",
    "RTREE": "spatial",
    "VECTOR": "vector",
}


@record(slots=True, frozen=True)
class BaselineQueries:
    """What to ask a source. ``where`` may limit all but ``schemas``: `` AND TABLE_SCHEMA IN (...)``."""

    schemas: str
    tables: str
    columns: str
    keys: str
    names: str

    @classmethod
    def of(cls, traits: LogTraits, where: str = "") -> "BaselineQueries":
        """The queries that a server of this family and version understands."""
        generated = "GENERATION_EXPRESSION" if traits.is_mariadb or traits.version >= (5, 7) else "''"
        limit = f"WHERE TABLE_SCHEMA NOT IN {_HIDDEN_SCHEMAS}{where}"
        return cls(
            "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA",
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_COLLATION "
            f"FROM information_schema.TABLES {limit}",
            "SELECT TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, "
            f"CHARACTER_SET_NAME, COLUMN_KEY, EXTRA, {generated} FROM information_schema.COLUMNS {limit}",
            "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, SUB_PART, NON_UNIQUE, "
            f"INDEX_TYPE FROM information_schema.STATISTICS {limit}",
            f"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES {limit}",
        )


@record(slots=True)
class _Listed:
    """What the rows say of one table."""

    table_type: str
    engine: str
    collation: str | None
    columns: dict[int, Row] = field(default_factory=dict)
    keys: dict[str, dict[int, Row]] = field(default_factory=dict)

    def add(self, columns: Iterable[Row], keys: Iterable[Row]) -> None:
        """Take rows of this table, without its name."""
        for position, *rest in columns:
            self.columns[int(position or 0)] = rest
        for index, position, *rest in keys:
            self.keys.setdefault(index or "", {})[int(position or 0)] = rest


# Columns by what the rows say of them. Many tables have equal ones: to make each once takes 19 us instead of 38 for a
# table of four.
_Made = dict[tuple[str | None, ...], ColumnShape]

# Rows of a table without its name: of ``BaselineQueries.tables``, and the payloads of ``columns`` and ``keys``.
_Packed = tuple[Row, tuple[bytes, ...], tuple[bytes, ...]]


def baseline(
    schemas: Iterable[Row], tables: Iterable[Row], columns: Iterable[Row], keys: Iterable[Row]
) -> Catalog:
    """The catalog that the rows of ``BaselineQueries`` describe. Views are left out.

    Raises ``ProtocolError`` for rows that are none of them.
    """
    with _answers():
        listed = _listed(tables)
        for row in columns:
            table = listed.get(TableName(row[0] or "", row[1] or ""))
            if table is not None:
                table.add((row[_NAMED:],), ())
        for row in keys:
            table = listed.get(TableName(row[0] or "", row[1] or ""))
            if table is not None:
                table.add((), (row[_NAMED:],))
    catalog, made = _with_schemas(schemas), _Made()
    for name, table in listed.items():
        if table.columns:
            catalog.set(name, _state(name, table, made))
    return catalog


def packed_baseline(
    schemas: Iterable[Row], tables: Iterable[Row], columns: Iterable[bytes], keys: Iterable[bytes]
) -> Catalog:
    """As ``baseline``; ``columns`` and ``keys`` are payloads of rows, which are read when their table is asked for.

    Few of a source's tables have rows in a stream: for 2,000 tables of four columns this takes a tenth of the time.
    Equal rows, and equal tables, share one object: most of 5,000 schemas of one application take no room.
    """
    known = dict[Any, Any]()
    with _answers():
        columns_of, keys_of = _by_table(columns, known), _by_table(keys, known)
        catalog, made = _with_schemas(schemas), _Made()
        for row in tables:
            name = TableName(known.setdefault(row[0] or "", row[0] or ""), row[1] or "")
            schema, own_name = map(utf8_bytes, name)
            key = b"%c%b%c%b" % (len(schema), schema, len(own_name), own_name)
            if key in columns_of and row[2] not in VIEWS:
                parts = tuple(row[_NAMED:]), columns_of[key], keys_of.get(key, ())
                catalog.set_listed(name, partial(_unpacked, name, known.setdefault(parts, parts), made))
    return catalog


@contextmanager
def _answers() -> Iterator[None]:
    """Raise ``ProtocolError`` for rows of another form than was asked for."""
    try:
        yield
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise ProtocolError(f"information_schema answered with rows that are no tables: {error!r}") from error


def _listed(tables: Iterable[Row]) -> dict[TableName, _Listed]:
    return {
        TableName(row[0] or "", row[1] or ""): _table_of(row[_NAMED:])
        for row in tables
        if row[2] not in VIEWS
    }


def _table_of(row: Row) -> _Listed:
    kind, engine, collation = row
    return _Listed(kind or "", (engine or "").lower(), collation)


def _with_schemas(schemas: Iterable[Row]) -> Catalog:
    catalog = Catalog()
    for schema, charset in schemas:
        try:
            catalog.set_schema(schema or "", charset)
        except UnknownShapeError:
            catalog.set_schema(schema or "", None)
    return catalog


def _by_table(rows: Iterable[bytes], known: dict[Any, Any]) -> dict[bytes, tuple[bytes, ...]]:
    """The rows of each table, by their common beginning: the first two values, as the protocol has them.

    The rows are without it. Names have at most 192 bytes, so the length of each is one byte.
    """
    found: dict[bytes, list[bytes]] = {}
    beginning, end = b"", 0
    group: list[bytes] = []
    for row in rows:
        if not beginning or not row.startswith(beginning):
            end = row[0] + 1
            end += row[end] + 1
            beginning = row[:end]
            group = found.setdefault(beginning, [])
        rest = row[end:]
        group.append(known.setdefault(rest, rest))
    packed: dict[bytes, tuple[bytes, ...]] = {}
    while found:
        beginning, group = found.popitem()
        rests = tuple(group)
        packed[beginning] = known.setdefault(rests, rests)
    return packed


def _unpacked(name: TableName, packed: _Packed, made: _Made) -> Shape | Unknown:
    row, columns, keys = packed
    table = _table_of(row)
    try:
        table.add(_texts(columns, COLUMN_VALUES - _NAMED), _texts(keys, KEY_VALUES - _NAMED))
    except (ProtocolError, ValueError) as error:
        # The source is asked again, for this table, when it has rows.
        return Unknown(f"information_schema answered with rows that are no table {name}: {error}")
    return _state(name, table, made)


def _texts(rows: Iterable[bytes], values: int) -> Iterator[Row]:
    for row in rows:
        yield [utf8_text(each) if isinstance(each, bytes) else each for each in parse_row(row, values)]


def _state(name: TableName, table: _Listed, made: _Made) -> Shape | Unknown:
    try:
        return _shape(table, made)
    except NO_SHAPE as error:
        return Unknown(f"{name} as information_schema has it: {error}")


def described_shape(descriptions: Sequence[ColumnDescription]) -> Shape:
    """The shape of a table whose columns somebody described. Its other keys and its character set are not known.

    Raises ``ConfigurationError`` for a type or a character set that there is not.
    """
    rows = [
        (each.name, each.data_type, each.column_type, None, each.charset, None, None, None)
        for each in descriptions
    ]
    try:
        columns = tuple(replace(_column(row), nullable=None) for row in rows)
        _check_names(columns)
    except UnknownShapeError as error:
        raise ConfigurationError(f"schema: {error}") from error
    parts = tuple((each.name, 0) for each in descriptions if each.primary)
    return Shape(columns, Key("PRIMARY", "primary", parts) if parts else None, None)


def _shape(table: _Listed, made: _Made) -> Shape:
    rows = [table.columns[position] for position in sorted(table.columns)]
    columns = [made.get(row) or made.setdefault(row, _column(row)) for row in map(tuple, rows)]
    _check_names(columns)
    has_explicit_period = any(column.role == "start" for column in columns)
    primary, keys = _keys(table, rows, columns)
    hidden = hidden_period() if table.table_type == "SYSTEM VERSIONED" and not has_explicit_period else []
    hidden += hash_columns(columns, sum(key.is_hash for key in keys))
    return Shape((*columns, *hidden), primary, keys, _table_charset(table.collation), table.engine)


def _check_names(columns: Sequence[ColumnShape]) -> None:
    if (name := repeated_name([column.name for column in columns])) is not None:
        raise UnknownShapeError(f"two columns have the name {name!r}")


def _table_charset(collation: str | None) -> str | None:
    if collation is None:
        return None
    try:
        return known(collation.partition("_")[0])
    except UnknownShapeError:
        return None


def _column(row: Row) -> ColumnShape:
    name, data_type, column_type, nullable, charset, _, extra, expression = (value or "" for value in row)
    base = data_type.lower()
    kind = "geometrycollection" if base == "geomcollection" else base
    text = column_type.lower()
    numbers = numbers_of(text) if kind in _SIZED_TYPES else ()
    labels = labels_of(column_type) if kind in LABEL_TYPES else ()
    is_number = "unsigned" in text.rpartition(")")[2] and not labels
    column = ColumnShape(
        intern(name),
        intern(kind),
        numbers,
        unsigned=is_number,
        zerofill=is_number and text.endswith("zerofill"),
        charset=_column_charset(kind, charset),
        labels=labels,
        nullable=nullable == "YES",
        generated=_generated(extra, expression),
        invisible="INVISIBLE" in extra,
        compressed="COMPRESSED*/" in column_type,
        role=_role(expression),
    )
    if not column.has_its_numbers:
        raise UnknownShapeError(f"column {name} has the type {column_type}")
    return column


def _column_charset(kind: str, charset: str) -> str | None:
    if charset:
        return known(charset)
    # MySQL 8.0 and later list none for the binary set.
    return "binary" if kind in LABEL_TYPES else None


def _generated(extra: str, expression: str) -> Generated:
    if _role(expression):
        return ""
    if "VIRTUAL GENERATED" in extra:
        return "virtual"
    return "stored" if "STORED GENERATED" in extra or "PERSISTENT" in extra else ""


def _role(expression: str) -> Role:
    return "start" if expression == "ROW START" else "end" if expression == "ROW END" else ""


# Keys.


def _keys(
    table: _Listed, rows: Sequence[Row], columns: Sequence[ColumnShape]
) -> tuple[Key | None, tuple[Key, ...]]:
    """The primary key and the others; the key that COLUMN_KEY calls PRI comes first."""
    made = {name: _key(name, parts, table.engine) for name, parts in table.keys.items()}
    primary = made.pop("PRIMARY", None)
    whole = {column.name: column for column in columns}
    implied = {row[0] for row in rows if row[5] == "PRI"} if primary is None else set()
    keys = sorted(made.values(), key=lambda key: not _is_implied(key, implied))
    return primary, tuple(_order(keys, whole, bool(implied)))


def _order(keys: Sequence[Key], columns: Mapping[str, ColumnShape], has_implied: bool) -> Iterator[Key]:
    first, rest = (keys[:1], keys[1:]) if has_implied else ([], keys)
    yield from first
    yield from sorted(rest, key=lambda key: (key.kind != "unique", _has_null(key, columns)))


def _has_null(key: Key, columns: Mapping[str, ColumnShape]) -> bool:
    return any(name not in columns or columns[name].nullable is not False for name, _ in key.parts)


def _is_implied(key: Key, names: set[str | None]) -> bool:
    return key.kind == "unique" and not key.is_hash and {name for name, _ in key.parts} == names


def _key(name: str, rows: Mapping[int, Row], engine: str) -> Key:
    _, _, non_unique, index_type = rows[min(rows)]
    kind: KeyKind = _KINDS.get(index_type or "", "index")
    if kind == "index" and non_unique == "0":
        kind = "primary" if name == "PRIMARY" else "unique"
    has_lengths = kind in ("index", "unique", "primary")
    parts = tuple(
        (rows[position][0] or "", int(rows[position][1] or 0) if has_lengths else 0)
        for position in sorted(rows)
    )
    is_hash = kind == "unique" and index_type == "HASH" and engine not in HASH_ENGINES
    return Key(name, kind, parts, is_hash, None if kind == "index" else False)
