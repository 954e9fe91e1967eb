"""Parses TABLE_MAP events, with every optional metadata field, into ``Table``.

Nothing here reads rows or asks a server. Layout: MySQL's ``libs/mysql/binlog/event/rows_event.h``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..charset import charset_of_collation
from ..constants import MAX_COLUMNS, ColumnType
from ..errors import ConfigurationError, DecodeError
from ..records import field, record
from ..wire import Reader, bitmap_size, bits_set, check_size, utf8_text
from .column import BLOB_TYPES, CHARACTER_TYPES, LABEL_TYPES, NUMERIC_TYPES, Column, repeated_name

_T = TypeVar("_T")


def table_text(schema: str, table: str) -> str:
    """``schema.table``; a schema with a dot is in backticks. No two tables have the same text."""
    if "." in schema or schema.startswith("`"):
        schema = in_backticks(schema)
    if table.startswith("`"):
        table = in_backticks(table)
    return f"{schema}.{table}"


def in_backticks(name: str) -> str:
    """A name between backticks; those inside are doubled."""
    return f"`{name.replace('`', '``')}`"


@record(slots=True, frozen=True)
class Table:
    """A table as a TABLE_MAP event describes it: ``name`` in ``schema``.

    ``columns`` are in the order of row tuples, ``column_names`` are their names, ``primary_key`` has the names of the
    key's columns (empty: no key, or unknown). ``names_from`` is the origin of the names: ``"log"``,
    ``"history"`` (the shape at the row's place), ``"information_schema"`` (as it is now), or None for ``@1``...
    ``str(table)`` is ``"schema.name"``.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    names_from: str | None = None
    column_names: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "column_names", tuple(column.name for column in self.columns))

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise ``ConfigurationError`` for a name of the option ``columns`` that the table does not have."""
        unknown = set(names).difference(self.column_names)
        if unknown:
            remedy = ": it has @1, @2..., as its names are not known: grant SELECT on it (for files: schema=)"
            text = f"columns: {self} has no column {', '.join(sorted(unknown))}"
            raise ConfigurationError(text if self.names_from else text + remedy)


@record(slots=True)
class _Fields:
    """Optional metadata as read, before it is assigned to the columns."""

    signs: tuple[bool, ...] | None = None
    charsets: "_Collations | None" = None
    label_charsets: "_Collations | None" = None
    names: list[bytes] | None = None
    set_labels: list[list[bytes]] = field(default_factory=list)
    enum_labels: list[list[bytes]] = field(default_factory=list)
    geometry_types: list[int] = field(default_factory=list)
    primary_key: list[int] = field(default_factory=list)
    visible: tuple[bool, ...] | None = None
    dimensions: list[int] = field(default_factory=list)


@record(slots=True)
class _Collations:
    """Collation ids of some columns: a list, or a default with exceptions by index."""

    listed: list[int] | None = None
    default: int | None = None
    exceptions: dict[int, int] = field(default_factory=dict)

    def of(self, index: int) -> int | None:
        if self.listed is None:
            return self.exceptions.get(index, self.default)
        if index >= len(self.listed):
            raise DecodeError("the table map's optional metadata lists too few character sets")
        return self.listed[index]


@record(frozen=True, slots=True)
class TableShape:
    """What a TABLE_MAP event says of a table besides its name: tables with equal bytes share one object."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    names_from: str | None
    column_names: tuple[str, ...]

    def named(self, schema: str, name: str) -> Table:
        """A table of this shape."""
        table = object.__new__(Table)
        for field_name, value in (
            ("schema", schema),
            ("name", name),
            ("columns", self.columns),
            ("primary_key", self.primary_key),
            ("names_from", self.names_from),
            ("column_names", self.column_names),
        ):
            object.__setattr__(table, field_name, value)
        return table


def parse_names(reader: Reader) -> tuple[str, str]:
    """The schema and the name, with which the body begins. Raises ``DecodeError``."""
    return _name(reader), _name(reader)


def parse_shape(reader: Reader, mariadb: bool, max_event_bytes: int) -> TableShape:
    """Parse what follows the names.

    Before 5.1.18 a table map ended after the types; rows of such a table cannot be read. Raises ``DecodeError`` if
    parts contradict each other, for more columns than a table can have, and for labels that take more memory than
    ``max_event_bytes``; ``TruncatedError`` if the event is too short.
    """
    count = reader.lenenc_int()
    if count > MAX_COLUMNS:
        raise DecodeError(f"the table map has {count} columns; a table has at most {MAX_COLUMNS}")
    types = reader.take(count)
    if not reader.remaining:
        return _build([(_known_type(code), 0) for code in types], (False,) * count, _Fields(), mariadb)
    metadata_length = reader.lenenc_int()
    metadata = Reader(reader.data, reader.position, reader.position + metadata_length)
    reader.skip(metadata_length)
    shapes = [_shape(code, metadata) for code in types]
    metadata.expect_end()
    nullable = bits_set(reader.take(bitmap_size(count)), count)
    fields = _read_fields(reader, _Limits(count, max_event_bytes))
    return _build(shapes, nullable, fields, mariadb)


def _name(reader: Reader) -> str:
    name = utf8_text(reader.short_bytes())
    if reader.u8():
        raise DecodeError("a schema or table name does not end with a zero byte")
    return name


def _string_shape(reader: Reader) -> tuple[ColumnType, int]:
    """STRING's metadata holds the real type (ENUM, SET), and two bits of a length above 255 (MySQL bug 37426)."""
    real, length = reader.u8(), reader.u8()
    if real & 0x30 != 0x30:
        length |= ((real & 0x30) ^ 0x30) << 4
        real |= 0x30
    if real not in (ColumnType.STRING, ColumnType.ENUM, ColumnType.SET, ColumnType.VAR_STRING):
        raise DecodeError(f"a STRING column has the impossible real type {real}")
    return ColumnType(real), length


def _bit_shape(reader: Reader) -> tuple[ColumnType, int]:
    bits, whole_bytes = reader.u8(), reader.u8()
    return ColumnType.BIT, whole_bytes * 8 + bits


def _typed_array_shape(reader: Reader) -> tuple[ColumnType, int]:
    """A functional index over JSON: in the table map, but never in a row image (WL#10604)."""
    code = reader.u8()
    if code == ColumnType.TYPED_ARRAY:
        raise DecodeError("the table map has an array of arrays")
    element, _ = _shape(code, reader)
    return ColumnType.TYPED_ARRAY, element


# Types whose metadata is a little-endian number, and the size of this number in bytes.
_METADATA_SIZES: dict[int, int] = {
    **dict.fromkeys((ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.GEOMETRY, ColumnType.JSON), 1),
    **dict.fromkeys(BLOB_TYPES, 1),
    **dict.fromkeys((ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2, ColumnType.VECTOR), 1),
    ColumnType.MARIADB_BLOB_COMPRESSED: 1,
    **dict.fromkeys((ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.MARIADB_VARCHAR_COMPRESSED), 2),
}
_SHAPES: dict[int, Callable[[Reader], tuple[ColumnType, int]]] = {
    ColumnType.STRING: _string_shape,
    ColumnType.ENUM: _string_shape,
    ColumnType.SET: _string_shape,
    ColumnType.BIT: _bit_shape,
    ColumnType.NEWDECIMAL: lambda reader: (ColumnType.NEWDECIMAL, reader.uint_be(2)),
    ColumnType.TYPED_ARRAY: _typed_array_shape,
}
_KNOWN_TYPES: frozenset[int] = frozenset(ColumnType) - {ColumnType.NULL, ColumnType.INVALID, ColumnType.BOOL}
# Allowed metadata: the size of a blob-like column's lengths, the fractional digits of a temporal column, and so on.
_METADATA_RANGES: dict[int, range] = {
    **dict.fromkeys(BLOB_TYPES, range(1, 5)),
    **dict.fromkeys(
        (ColumnType.GEOMETRY, ColumnType.JSON, ColumnType.VECTOR, ColumnType.MARIADB_BLOB_COMPRESSED),
        range(1, 5),
    ),
    **dict.fromkeys((ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2), range(7)),
    ColumnType.ENUM: range(1, 3),
    ColumnType.SET: range(1, 9),
    ColumnType.BIT: range(1, 65),
    ColumnType.FLOAT: range(4, 5),
    ColumnType.DOUBLE: range(8, 9),
}


def _known_type(code: int) -> ColumnType:
    if code not in _KNOWN_TYPES:
        raise DecodeError(f"the table map has the unknown column type {code}")
    return ColumnType(code)


def _shape(code: int, reader: Reader) -> tuple[ColumnType, int]:
    special = _SHAPES.get(code)
    if special is not None:
        column_type, metadata = special(reader)
    else:
        column_type, metadata = _known_type(code), reader.uint(_METADATA_SIZES.get(code, 0))
    allowed = _METADATA_RANGES.get(column_type)
    if allowed is not None and metadata not in allowed:
        raise DecodeError(f"a column of type {column_type.name} has the impossible metadata {metadata}")
    if column_type is ColumnType.NEWDECIMAL and not 0 <= metadata & 0xFF <= metadata >> 8 <= 65:
        raise DecodeError(f"a column has the impossible type DECIMAL({metadata >> 8},{metadata & 0xFF})")
    return column_type, metadata


# Memory of one label: it is read as bytes and as text.
_LABEL_BYTES = 100
# ENUM's index has at most two bytes.
_MAX_LABELS = 65_535


@record(frozen=True, slots=True)
class _Limits:
    """The limits of optional metadata: so many columns, and ``label_bytes`` of memory for labels."""

    columns: int
    label_bytes: int


def _lenenc_list(reader: Reader, limits: _Limits) -> list[int]:
    """At most two numbers for each column."""
    values = []
    while reader.remaining:
        values.append(reader.lenenc_int())
        if len(values) > 2 * limits.columns:
            raise DecodeError(
                f"the table map's optional metadata has too many numbers for {limits.columns} columns"
            )
    return values


def _charset_list(reader: Reader, limits: _Limits) -> _Collations:
    return _Collations(listed=_lenenc_list(reader, limits))


def _default_charset(reader: Reader, limits: _Limits) -> _Collations:
    default = reader.lenenc_int()
    pairs = _lenenc_list(reader, limits)
    if len(pairs) % 2:
        raise DecodeError("the table map's default character set ends inside an exception")
    return _Collations(default=default, exceptions=dict(zip(pairs[::2], pairs[1::2], strict=True)))


def _name_list(reader: Reader, limits: _Limits) -> list[bytes]:
    names = []
    while reader.remaining:
        names.append(reader.lenenc_bytes())
        if len(names) > limits.columns:
            raise DecodeError(f"the table map has more column names than its {limits.columns} columns")
    return names


def _label_lists(reader: Reader, limits: _Limits) -> list[list[bytes]]:
    lists: list[list[bytes]] = []
    total = 0
    while reader.remaining:
        count = reader.lenenc_int()
        if count > min(reader.remaining, _MAX_LABELS):
            raise DecodeError(f"the table map announces {count} labels in {reader.remaining} bytes")
        total += count
        check_size("a table map with labels", total * _LABEL_BYTES, limits.label_bytes)
        lists.append([reader.lenenc_bytes() for _ in range(count)])
        if len(lists) > limits.columns:
            raise DecodeError(f"the table map has more lists of labels than its {limits.columns} columns")
    return lists


def _bits_high_first(reader: Reader, limits: _Limits) -> tuple[bool, ...]:
    data = reader.take(min(bitmap_size(limits.columns), reader.remaining))
    return tuple(bool(byte & 0x80 >> bit) for byte in data for bit in range(8))


# Optional metadata fields (rows_event.h: Optional_metadata_field_type) -> attribute of _Fields, and its parser.
_FIELDS: dict[int, tuple[str, Callable[[Reader, _Limits], object]]] = {
    1: ("signs", _bits_high_first),
    2: ("charsets", _default_charset),
    3: ("charsets", _charset_list),
    4: ("names", _name_list),
    5: ("set_labels", _label_lists),
    6: ("enum_labels", _label_lists),
    7: ("geometry_types", _lenenc_list),
    8: ("primary_key", _lenenc_list),
    9: ("primary_key", lambda reader, limits: _lenenc_list(reader, limits)[::2]),
    10: ("label_charsets", _default_charset),
    11: ("label_charsets", _charset_list),
    12: ("visible", _bits_high_first),
    13: ("dimensions", _lenenc_list),
}


def _read_fields(reader: Reader, limits: _Limits) -> _Fields:
    """All optional fields; unknown fields of later servers are skipped, as servers do.

    A field comes once: that bounds the work for a table map that lies.
    """
    fields = _Fields()
    codes: set[int] = set()
    while reader.remaining:
        code = reader.u8()
        if code in codes:
            raise DecodeError(f"optional metadata field {code} of a table map comes twice")
        codes.add(code)
        length = reader.lenenc_int()
        start = reader.skip(length)
        known = _FIELDS.get(code)
        if known is not None:
            name, read = known
            setattr(fields, name, read(Reader(reader.data, start, start + length), limits))
    return fields


def _build(
    shapes: Sequence[tuple[ColumnType, int]],
    nullable: Sequence[bool],
    fields: _Fields,
    mariadb: bool,
) -> TableShape:
    if fields.names is not None and len(fields.names) != len(shapes):
        raise DecodeError(f"the table map has {len(fields.names)} column names for {len(shapes)} columns")
    signs = iter(fields.signs) if fields.signs is not None else None
    visible = fields.visible or (True,) * len(shapes)
    if len(visible) < len(shapes):
        raise DecodeError("the table map's optional metadata has the visibility of too few columns")
    dealer = _Dealer(fields, mariadb)
    columns = []
    for index, (column_type, metadata) in enumerate(shapes):
        unsigned = None
        if signs is not None and column_type in NUMERIC_TYPES:
            unsigned = _next(signs, "signs")
        collation, labels = dealer.deal(column_type)
        columns.append(
            Column(
                name=_column_name(fields.names, index),
                type=column_type,
                metadata=metadata,
                nullable=nullable[index],
                unsigned=unsigned,
                charset=dealer.charset_name(collation),
                collation=collation,
                labels=labels,
                visible=visible[index],
                geometry_type=dealer.geometry_type(column_type),
                dimension=dealer.dimension(column_type),
            )
        )
    names_from = None if fields.names is None else "log"
    if any(index >= len(columns) for index in fields.primary_key):
        raise DecodeError("the table map's primary key has a column that the table lacks")
    primary_key = tuple(columns[index].name for index in fields.primary_key)
    names = tuple(column.name for column in columns)
    if (name := repeated_name(names)) is not None:
        raise DecodeError(f"the table map has two columns of the name {name!r}")
    return TableShape(tuple(columns), primary_key, names_from, names)


def _column_name(names: list[bytes] | None, index: int) -> str:
    return f"@{index + 1}" if names is None else utf8_text(names[index])


def _next(values: Iterator[_T], what: str) -> _T:
    for value in values:
        return value
    raise DecodeError(f"the table map's optional metadata has too few {what}")


class _Dealer:
    """Assigns optional fields to columns: each field counts only the columns of its own kind, in column order."""

    def __init__(self, fields: _Fields, mariadb: bool) -> None:
        self._fields = fields
        self._mariadb = mariadb
        self._character_index = -1
        self._label_index = -1
        self._set_labels = iter(fields.set_labels)
        self._enum_labels = iter(fields.enum_labels)
        self._geometry_types = iter(fields.geometry_types)
        self._dimensions = iter(fields.dimensions)

    def deal(self, column_type: ColumnType) -> tuple[int | None, tuple[str, ...] | None]:
        """Collation id and labels of the next column."""
        if column_type in CHARACTER_TYPES or (self._mariadb and column_type is ColumnType.GEOMETRY):
            self._character_index += 1
            charsets = self._fields.charsets
            return (charsets.of(self._character_index) if charsets else None), None
        if column_type in LABEL_TYPES:
            self._label_index += 1
            charsets = self._fields.label_charsets
            collation = charsets.of(self._label_index) if charsets else None
            return collation, self._labels(column_type, collation)
        return None, None

    def _labels(self, column_type: ColumnType, collation: int | None) -> tuple[str, ...] | None:
        of_enum = column_type is ColumnType.ENUM
        if not (self._fields.enum_labels if of_enum else self._fields.set_labels):
            return None
        raw = _next(self._enum_labels if of_enum else self._set_labels, "label lists")
        charset = None if collation is None else charset_of_collation(collation, self._mariadb)
        if charset is None or charset.decode is None:
            return tuple(map(utf8_text, raw))
        return tuple(map(charset.decode, raw))

    def charset_name(self, collation: int | None) -> str | None:
        charset = None if collation is None else charset_of_collation(collation, self._mariadb)
        return None if charset is None else charset.name

    def geometry_type(self, column_type: ColumnType) -> int | None:
        return next(self._geometry_types, None) if column_type is ColumnType.GEOMETRY else None

    def dimension(self, column_type: ColumnType) -> int | None:
        return next(self._dimensions, None) if column_type is ColumnType.VECTOR else None
