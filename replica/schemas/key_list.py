"""The keys of a table as servers keep them: names they make up, keys of FOREIGN KEYs that come and go, the order.

Names and order matter for one thing: which unique key rows are logged by where there is no PRIMARY KEY. Sources:
sql_table.cc of both families (``mysql_prepare_create_table``, ``make_unique_key_name``, ``sort_keys``,
``foreign_key_prefix``), measured on MySQL 5.6 and 9.7, MariaDB 10.11 and 11.8.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.charset import charset_by_name
from protocol.records import record, replace

from ..sql.ddl_statements import KeyClause
from .charset_names import UnknownShapeError
from .column_shapes import BLOB_TYPES, GEOMETRY_TYPES, STRING_TYPES
from .shape import ColumnShape, Key, Period

_UNNAMED_EXPRESSION: Final = "functional_index"
_MOST_SUFFIXES: Final = 100
# Servers allow 64 or 128 keys, without those that are left out because another key begins as they do.
_MOST_KEYS: Final = 1024
# What a key over a POINT is of where its length is not said.
_POINT_BYTES: Final = 25
_GEOMETRY_BYTES: Final = 8
# MariaDB: the longest keys of the engines, in bytes; beyond, a unique key is one over a hash.
_LONGEST: Final[Mapping[str, int]] = {"innodb": 3072, "": 3072, "myisam": 1000, "aria": 2300}
#: Engines whose keys may be hashes, without a column for them.
HASH_ENGINES: Final = frozenset({"memory", "heap"})
# What is never too long for any engine.
_SHORT_ENOUGH: Final = 767
_MOST_FIXED: Final = 16
_BYTES: Final[Mapping[str, int]] = {
    "tinyint": 1,
    "smallint": 2,
    "mediumint": 3,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "date": 3,
    "time": 3,
    "datetime": 5,
    "timestamp": 4,
    "year": 1,
    "inet4": 4,
}


class SettledKeys(NamedTuple):
    """The primary key, and the others in the server's order; how many of them have a column with a hash."""

    primary: Key | None
    others: tuple[Key, ...] | None
    hashes: int


class KeyList:
    """Keys while a statement works on them: first keys are dropped, then renamed, then added.

    ``others`` is None when the trail of their names is lost.
    """

    def __init__(self, primary: Key | None = None, others: Sequence[Key] | None = ()) -> None:
        self.primary = primary
        self.others = None if others is None else list(others)
        self._added: list[tuple[Key, KeyClause]] = []
        self._primary_period = ""
        self._primary_place = 0
        self.has_new_primary = False
        self._had_primary = primary is not None
        self._had = {key.name.lower() for key in others or ()}

    def drop(self, name: str, *, is_conditional: bool, is_constraint: bool) -> None:
        """DROP INDEX, DROP PRIMARY KEY, DROP CONSTRAINT."""
        if name.upper() == "PRIMARY" and self.primary is not None:
            self.primary = None
            return
        if self.others is None:
            return
        left = [
            key
            for key in self.others
            if key.name.lower() != name.lower() or (is_constraint and key.kind != "unique")
        ]
        if len(left) == len(self.others) and not is_conditional and not is_constraint:
            self.others = None
        else:
            self.others = left

    def rename(self, names: Mapping[str, str]) -> None:
        """RENAME INDEX: old names, in small letters, to new ones."""
        if self.others is not None:
            if not names.keys() <= {key.name.lower() for key in self.others}:
                self.others = None
                return
            self.others = [replace(key, name=names.get(key.name.lower(), key.name)) for key in self.others]

    def lose_over(self, columns: Collection[str]) -> None:
        """Lose the trail if a unique key is over one of these columns as a whole."""
        parts = [part for key in self.others or () if key.kind == "unique" for part in key.parts]
        if any(name in columns and not length for name, length in parts):
            self.others = None

    def rename_columns(self, names: Mapping[str, str | None]) -> None:
        """Old names of columns -> new ones, None for columns that are dropped; both as they are written."""
        if self.primary is not None:
            self.primary = _with_columns(self.primary, names)
        if self.others is not None:
            self.others = [
                key for key in (_with_columns(key, names) for key in self.others) if key is not None
            ]

    def add(self, clause: KeyClause) -> None:
        """A key of CREATE TABLE or ADD; it gets its name in ``finish``. Raises ``UnknownShapeError`` for too many."""
        parts = tuple((part.column, part.length) for part in clause.parts)
        if clause.kind == "primary":
            if not (clause.is_conditional and self._had_primary):
                self.primary = Key("PRIMARY", "primary", parts)
                self._primary_period = clause.period
                self._primary_place = len(self._added)
                self.has_new_primary = True
            return
        if clause.is_conditional and (clause.name or parts[0][0]).lower() in self._had:
            return
        if len(self._added) + len(self.others or ()) >= _MOST_KEYS:
            raise UnknownShapeError(f"more than {_MOST_KEYS} keys, which no table can have")
        is_foreign = clause.kind == "foreign"
        kind = "index" if clause.kind == "foreign" else clause.kind
        key = Key(clause.name, kind, parts, is_generated=is_foreign)
        self._added.append((key, clause))

    def finish(
        self,
        columns: Sequence[ColumnShape],
        periods: Sequence[Period],
        engine: str,
        *,
        late: Collection[str] = (),
        has_hashes: bool,
    ) -> SettledKeys:
        """The keys behind the statement.

        ``late`` are the columns that are NOT NULL only by a primary key of this statement: servers see them as
        nullable in keys that come before it. ``has_hashes``: MariaDB from 10.4 on.
        """
        by_name = {column.name.lower(): column for column in columns}
        ends = [column.name for column in columns if column.role == "end" and not column.is_hidden]
        primary = self.primary
        if primary is not None:
            primary = _with_end(_with_period(primary, self._primary_period, periods), ends)
            primary = _settled(primary, by_name)
        hashing = _Hashing(by_name, engine) if has_hashes else None
        entries = [
            _Entry(_settled(_kept(_with_end(key, ends), by_name), by_name)) for key in self.others or ()
        ]
        for place, (key, clause) in enumerate(self._added):
            key = _with_end(_with_period(key, clause.period, periods), ends)
            entries.append(_Entry(_settled(key, by_name), clause.method, place < self._primary_place))
        needs_hash = {
            id(entry.key) for entry in entries if hashing and hashing.is_needed(entry.key, entry.method)
        }
        left = None if self.others is None else _without_superfluous(entries, primary)
        if left is None:
            if needs_hash:
                raise UnknownShapeError("a unique key over a hash beside keys whose trail is lost")
            return SettledKeys(primary, None, 0)
        nullable = {name for name, column in by_name.items() if column.nullable is not False}
        early = nullable | {name.lower() for name in late}
        settled: list[Key] = []
        nulls: list[bool] = []
        for entry in left:
            name = entry.key.name or _made_up_name(entry.key, settled)
            settled.append(replace(entry.key, name=name, is_hash=id(entry.key) in needs_hash))
            nulls.append(_has_part(entry.key, early if entry.is_early else nullable))
        order = sorted(range(len(settled)), key=lambda place: _order(settled[place], nulls[place]))
        return SettledKeys(
            primary,
            tuple(settled[place] for place in order),
            sum(key.is_hash for key in settled),
        )


@record(slots=True, frozen=True)
class _Entry:
    """A key in the list; ``is_early``: a primary key that the statement adds comes behind it."""

    key: Key
    method: str = ""
    is_early: bool = True


def _has_part(key: Key, names: Collection[str]) -> bool:
    return any(not name or name.lower() in names for name, _ in key.parts)


def _with_columns(key: Key, names: Mapping[str, str | None]) -> Key | None:
    """The key with other names of columns; None if none of its columns is left."""
    renamed = [(names.get(name, name), length) for name, length in key.parts]
    parts = tuple((name, length) for name, length in renamed if name is not None)
    if parts == key.parts:
        return key
    return replace(key, parts=parts) if parts else None


def _with_period(key: Key, name: str, periods: Sequence[Period]) -> Key:
    """WITHOUT OVERLAPS adds the columns of the period, its end first."""
    if not name:
        return key
    for period in periods:
        if period.name.lower() == name.lower():
            return replace(key, parts=(*key.parts, (period.end, 0), (period.start, 0)))
    raise UnknownShapeError(f"the columns of period {name} are not known")


def _with_end(key: Key, ends: Sequence[str]) -> Key:
    """A unique key of a system-versioned table ends in the end of its period, where that is a column of its own."""
    names = {name.lower() for name, _ in key.parts}
    if key.kind not in ("primary", "unique"):
        return key
    return replace(key, parts=(*key.parts, *((name, 0) for name in ends if name.lower() not in names)))


def _kept(key: Key, columns: Mapping[str, ColumnShape]) -> Key:
    """A unique key over a whole GEOMETRY, which is one over a hash, is one over a prefix behind the next ALTER."""
    if key.kind != "unique":
        return key
    geometries = {name for name, column in columns.items() if column.type in GEOMETRY_TYPES}
    parts = [
        (name, length or (_GEOMETRY_BYTES if name.lower() in geometries else 0)) for name, length in key.parts
    ]
    return replace(key, parts=tuple(parts))


def _settled(key: Key, columns: Mapping[str, ColumnShape]) -> Key:
    """The key with its columns' own spelling, and no prefix where that is the whole column."""
    parts = []
    for name, length in key.parts:
        column = columns.get(name.lower())
        if column is None and name:
            raise UnknownShapeError(f"a key over {name}, which is no column")
        parts.append((name, length) if column is None else (column.name, _prefix(key, column, length)))
    return replace(key, parts=tuple(parts))


def _prefix(key: Key, column: ColumnShape, length: int) -> int:
    """The length of a key's part, 0 for the whole column."""
    if column.type == "point" and not length and key.kind in ("index", "unique", "primary"):
        return _POINT_BYTES
    if column.type in BLOB_TYPES or column.type in GEOMETRY_TYPES or not column.type:
        return length
    is_whole = column.type not in STRING_TYPES or length >= column.numbers[0]
    return 0 if is_whole else length


def _order(key: Key, has_null: bool) -> tuple[bool, bool, bool, bool]:
    """Unique keys first, of them those without NULL, of them those without prefixes; FULLTEXT last."""
    if key.kind != "unique":
        return True, False, False, key.kind == "fulltext"
    return False, has_null, any(length for _, length in key.parts), False


def _without_superfluous(entries: Sequence[_Entry], primary: Key | None) -> list[_Entry] | None:
    """Without the keys that were made for a FOREIGN KEY and are the beginning of another key.

    None if that depends on who made a key, which is not known, and a name depends on it.
    """
    left = [entry.key for entry in entries]
    for key in [entry.key for entry in entries]:
        if key.is_generated is False:
            continue
        covering = [
            other
            for other in (*left, *([primary] if primary else ()))
            if other is not key
            and other.parts[: len(key.parts)] == key.parts
            and (
                other.is_generated is False
                or len(other.parts) > len(key.parts)
                or _is_before(left, other, key)
            )
        ]
        if covering and key.is_generated:
            left = [other for other in left if other is not key]
        elif any(not other.name for other in covering):
            return None
    kept = {id(key) for key in left}
    return [entry for entry in entries if id(entry.key) in kept]


def _is_before(keys: Sequence[Key], one: Key, other: Key) -> bool:
    return next(key for key in keys if key is one or key is other) is one


def _made_up_name(key: Key, others: Sequence[Key]) -> str:
    taken = {other.name.lower() for other in others} | {"primary"}
    name = key.parts[0][0] if all(name for name, _ in key.parts) else _UNNAMED_EXPRESSION
    candidates = [name, *(f"{name}_{number}" for number in range(2, _MOST_SUFFIXES))]
    return next((candidate for candidate in candidates if candidate.lower() not in taken), name)


@record(slots=True, frozen=True)
class _Hashing:
    """Which unique keys of MariaDB have a hidden column: those of long columns, and new ones USING HASH."""

    columns: Mapping[str, ColumnShape]
    engine: str

    def is_needed(self, key: Key, method: str) -> bool:
        if key.kind != "unique" or self.engine in HASH_ENGINES:
            return False
        if method == "HASH":
            return True
        sizes = [self._size(name, length) for name, length in key.parts]
        if None in sizes:
            return True
        size = sum(size or 0 for size in sizes)
        longest = _LONGEST.get(self.engine)
        if longest is None and size > _SHORT_ENOUGH:
            raise UnknownShapeError(f"a unique key of {size} bytes in engine {self.engine}")
        return longest is not None and size > longest

    def _size(self, name: str, length: int) -> int | None:
        """Bytes of a part of a key; None for a whole BLOB or TEXT."""
        column = self.columns.get(name.lower())
        if column is None:
            raise UnknownShapeError("a unique key over an expression")
        if not column.type:
            raise UnknownShapeError(f"a unique key over {name}, whose type is not known")
        charset = charset_by_name(column.charset or "binary")
        width = 1 if charset is None else charset.max_bytes
        if column.type in STRING_TYPES:
            return (length or column.numbers[0]) * width
        if column.type in BLOB_TYPES or column.type.startswith(
            ("geometry", "point", "multi", "line", "poly")
        ):
            return length * width if length else None
        return _fixed_size(column)


def _fixed_size(column: ColumnShape) -> int:
    """Bytes of a value of a type without characters."""
    if column.type == "decimal":
        precision, scale = column.numbers
        return _decimal_size(precision - scale) + _decimal_size(scale)
    if column.type == "bit":
        return (column.numbers[0] + 7) // 8
    if column.type == "enum":
        return 1 if len(column.labels) < 256 else 2
    if column.type == "set":
        return min((len(column.labels) + 7) // 8, 8)
    fraction = (column.numbers[0] + 1) // 2 if column.numbers else 0
    return _BYTES.get(column.type, _MOST_FIXED) + fraction


def _decimal_size(digits: int) -> int:
    return digits // 9 * 4 + (digits % 9 + 1) // 2
