"""The shape of a table: its columns as the log counts them, its keys, and what later ALTER statements need.

Shapes are values: equal when everything in them is equal, and never changed. This module reads no SQL and no log.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeVar

from protocol.records import record
from protocol.rows.description import ColumnDescription

from ..sql.quoting import quoted

_Made = TypeVar("_Made")
Generated = Literal["", "virtual", "stored"]
#: ``start`` and ``end``: the period of a system-versioned table. ``hash``: the hash of a unique key's long columns.
Role = Literal["", "start", "end", "hash"]
KeyKind = Literal["primary", "unique", "index", "fulltext", "spatial", "vector"]

# How many numbers a type has; others may have some.
_NUMBER_COUNTS: Final = {
    "char": 1,
    "varchar": 1,
    "binary": 1,
    "varbinary": 1,
    "bit": 1,
    "decimal": 2,
    "vector": 1,
}
# What the attributes of a shape that comes from elsewhere must be.
_COLUMN_KINDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("name", "type", "generated", "role"), str),
    **dict.fromkeys(("unsigned", "zerofill", "invisible", "compressed", "is_hidden"), bool),
    "charset": str | None,
    "nullable": bool | None,
}
_KEY_KINDS: Final[Mapping[str, Any]] = {
    "name": str,
    "kind": str,
    "is_hash": bool,
    "is_generated": bool | None,
}

_ESCAPES = str.maketrans({"\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r"})


@record(slots=True, frozen=True)
class ColumnShape:
    """A column, called ``name``. ``type`` is information_schema's DATA_TYPE; ``geometrycollection`` on all servers.

    ``numbers``: characters of CHAR and VARCHAR, bytes of BINARY and VARBINARY, bits of BIT, precision and scale of
    DECIMAL, fractional digits of a time where there are any, dimensions of VECTOR; nothing for other types.
    ``charset`` is None for types without. ``nullable`` is None where nothing tells it. ``is_hidden``: the log has the
    column, SELECT * and information_schema do not. ``type`` is empty where only the name is known: a later statement
    gave the column another definition.

    ``labels`` are those of ENUM and SET. ``generated`` is ``"virtual"``, ``"stored"`` or empty. ``unsigned``,
    ``zerofill``, ``invisible`` and ``compressed`` are the attributes of these names. ``role`` says what a column of
    MariaDB is for: ``"start"`` and ``"end"`` of a system-versioned row, ``"hash"`` of a unique key; else empty.
    """

    name: str
    type: str
    numbers: tuple[int, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    labels: tuple[str, ...] = ()
    nullable: bool | None = True
    generated: Generated = ""
    invisible: bool = False
    compressed: bool = False
    role: Role = ""
    is_hidden: bool = False

    @property
    def column_type(self) -> str:
        """The type as COLUMN_TYPE has it, without the display widths of numbers: ``int unsigned``, ``enum('a')``."""
        inside = ",".join(map(str, self.numbers))
        if self.type in ("enum", "set"):
            inside = ",".join(quoted(label.translate(_ESCAPES), "'") for label in self.labels)
        text = f"{self.type}({inside})" if inside else self.type
        return text + " unsigned" * self.unsigned + " zerofill" * self.zerofill

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is as usual is left out."""
        return _slim(self, _column_defaults())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ColumnShape":
        """The reverse of ``to_dict``; ``TypeError`` on anything else."""
        tuples = {name: tuple(data[name]) for name in ("numbers", "labels") if name in data}
        made = _checked(cls(**{**data, **tuples}), _COLUMN_KINDS)
        if not (
            made.has_its_numbers
            and all(type(number) is int for number in made.numbers)
            and all(type(label) is str for label in made.labels)
        ):
            raise TypeError(f"a column of type {made.type} with {made.numbers} and {made.labels}")
        return made

    @property
    def has_its_numbers(self) -> bool:
        """Whether there are as many numbers as the type needs."""
        return len(self.numbers) == _NUMBER_COUNTS.get(self.type, len(self.numbers))


@record(slots=True, frozen=True)
class Key:
    """A key, called ``name``. ``parts``: columns with the length of their prefix, 0 for the whole column.

    ``kind`` is ``"primary"``, ``"unique"``, ``"index"``, ``"fulltext"``, ``"spatial"`` or ``"vector"``.
    An expression has the column ``""``. A key WITHOUT OVERLAPS ends in the end and the start of its period.
    ``is_hash``: MariaDB keeps a hidden column with a hash of the columns. ``is_generated``: the server made the key
    for a FOREIGN KEY; None where that is not known.
    """

    name: str
    kind: KeyKind
    parts: tuple[tuple[str, int], ...]
    is_hash: bool = False
    is_generated: bool | None = False


@record(slots=True, frozen=True)
class Period:
    """An application's period of MariaDB, called ``name``: from the column ``start`` to the column ``end``."""

    name: str
    start: str
    end: str


@record(slots=True, frozen=True)
class Shape:
    """A table's shape. ``columns`` are those of the log, in its order: hidden ones stand at the end.

    ``primary`` is the PRIMARY KEY, if there is one. ``keys`` are the others in the server's order; None: the trail of
    their names is lost. ``charset`` is the table's default, None where it is not known. ``engine`` is empty where no
    statement said it. ``periods`` are MariaDB's application periods. ``lost``: at least and at most so many columns
    stand somewhere besides; a later statement dropped or moved them.
    """

    columns: tuple[ColumnShape, ...]
    primary: Key | None = None
    keys: tuple[Key, ...] | None = ()
    charset: str | None = None
    engine: str = ""
    periods: tuple[Period, ...] = ()
    lost: tuple[int, int] = (0, 0)

    @property
    def is_whole(self) -> bool:
        """Whether all columns are known with their definitions."""
        return self.lost == (0, 0) and not self.untyped

    @property
    def untyped(self) -> list[str]:
        """The names of the columns whose type is not known."""
        return [column.name for column in self.columns if not column.type]

    @property
    def visible(self) -> tuple[ColumnShape, ...]:
        """The columns that information_schema lists."""
        return tuple(column for column in self.columns if not column.is_hidden)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The key by which servers log rows: PRIMARY KEY, else the first unique key without NULL; names in key order.

        It is what a TABLE_MAP has at binlog_row_metadata=FULL: a system-versioned table's key ends in the column of
        the period's end. Empty: no such key, or the trail of the keys is lost.
        """
        key = self.primary or self._implied_key()
        if key is None:
            return ()
        names = [name for name, _ in key.parts]
        ends = [column.name for column in self.columns if column.role == "end"]
        return tuple(names + [name for name in ends if name not in names])

    def _implied_key(self) -> Key | None:
        columns = {column.name: column for column in self.columns}
        untyped = self.untyped
        if any(length and name in untyped for key in self.keys or () for name, length in key.parts):
            # The prefix may be the whole column.
            return None
        for key in self.keys or ():
            if key.kind != "unique" or key.is_hash or any(length or not name for name, length in key.parts):
                continue
            parts = [columns.get(name) for name, _ in key.parts]
            if any(part is not None and (part.nullable or part.generated == "virtual") for part in parts):
                continue
            return None if any(part is None or part.nullable is None for part in parts) else key
        return None

    def descriptions(self) -> list[ColumnDescription]:
        """The columns of a whole shape as ``describe_table`` takes them."""
        primary = set(self.primary_key)
        return [
            ColumnDescription(
                column.name,
                column.type,
                column.column_type,
                column.nullable is not False,
                column.charset,
                column.name in primary,
            )
            for column in self.columns
        ]

    # JSON.

    def to_dict(self, columns: Sequence[Any] | None = None) -> dict[str, Any]:
        """Plain values for JSON; what is as usual is left out. ``columns`` stand in the place of the columns."""
        if columns is None:
            columns = [column.to_dict() for column in self.columns]
        data: dict[str, Any] = {"columns": columns}
        if self.primary is not None:
            data["primary"] = _slim(self.primary, _key_defaults())
        if self.keys is None or self.keys:
            data["keys"] = None if self.keys is None else [_slim(key, _key_defaults()) for key in self.keys]
        if self.charset is not None:
            data["charset"] = self.charset
        if self.engine:
            data["engine"] = self.engine
        if self.periods:
            data["periods"] = [[period.name, period.start, period.end] for period in self.periods]
        if self.lost != (0, 0):
            data["lost"] = list(self.lost)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], columns: Sequence[ColumnShape] | None = None) -> "Shape":
        """The reverse of ``to_dict``; ``ValueError``, ``KeyError`` or ``TypeError`` on anything else."""
        if columns is None:
            columns = [ColumnShape.from_dict(column) for column in data["columns"]]
        keys = data.get("keys", [])
        primary = data.get("primary")
        made = cls(
            tuple(columns),
            None if primary is None else _key(primary),
            None if keys is None else tuple(map(_key, keys)),
            data.get("charset"),
            data.get("engine", ""),
            tuple(Period(*map(str, period)) for period in data.get("periods", ())),
            _range(*data.get("lost", (0, 0))),
        )
        return _checked(made, {"charset": str | None, "engine": str})


def _slim(values_of: ColumnShape | Key, defaults: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: value for name, value in _values(values_of) if name not in defaults or value != defaults[name]
    }


def _key(data: Mapping[str, Any]) -> Key:
    return _checked(Key(**{**data, "parts": _parts(data["parts"])}), _KEY_KINDS)


def _checked(made: _Made, kinds: Mapping[str, Any]) -> _Made:
    """The same; ``TypeError`` if an attribute is of another kind."""
    for name, kind in kinds.items():
        if not isinstance(getattr(made, name), kind):
            raise TypeError(f"the {name} of a shape is {getattr(made, name)!r}")
    return made


def _range(fewest: int, most: int) -> tuple[int, int]:
    return int(fewest), int(most)


def _parts(parts: Sequence[Sequence[Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((str(name), int(length)) for name, length in parts)


@cache
def _column_defaults() -> Mapping[str, object]:
    return {name: value for name, value in _values(ColumnShape("", "")) if name not in ("name", "type")}


@cache
def _key_defaults() -> Mapping[str, object]:
    return {
        name: value for name, value in _values(Key("", "index", ())) if name not in ("name", "kind", "parts")
    }


def _values(values_of: ColumnShape | Key) -> list[tuple[str, Any]]:
    return [(name, getattr(values_of, name)) for name in values_of.__slots__]
