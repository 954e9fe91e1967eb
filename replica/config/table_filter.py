"""Table filter: turns ``"schema.table"`` patterns into one predicate, which the decoder calls once per table."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Final

from protocol.binlog.decoder import WantsTable
from protocol.records import record
from protocol.rows.table import in_backticks, table_text

from .table_names import split_text, unquoted, written_parts

_WILDCARD: Final = r"[*?\[]"
# Of so many of the tables that no pattern matched, the nearest names are searched.
_NAMES_KEPT: Final = 1000
# Of so many patterns.
_NEAREST: Final = 20


@record(frozen=True, slots=True)
class SeenTables:
    """What a filter has seen: the patterns that matched no table, and tables that no pattern matched."""

    unmatched: tuple[str, ...]
    others: tuple[str, ...]


class TableFilter:
    """Whether a table is wanted; remembers which patterns have matched.

    A pattern has two parts in the syntax of ``fnmatch.fnmatchcase``: the schema before the first dot, the table after
    it. A part in backticks is a name: dots and wildcards in it stand for themselves. ``"*"`` alone matches every
    table. A table is wanted if it matches a pattern of ``tables`` and none of ``exclude``.
    """

    def __init__(self, tables: Sequence[str], exclude: Sequence[str] = ()) -> None:
        self._wanted, self._unwanted = _Patterns(tables), _Patterns(exclude)
        self._unmatched = dict.fromkeys(tables)
        self._others: dict[str, None] = {}

    def __call__(self, schema: str, table: str) -> bool:
        found = False
        for pattern in self._wanted.matching(schema, table):
            self._unmatched.pop(pattern, None)
            found = True
        if not found and len(self._others) < _NAMES_KEPT:
            self._others[table_text(schema, table)] = None
        return found and not any(self._unwanted.matching(schema, table))

    def may_want_tables_of(self, schema: str) -> bool:
        """Whether a pattern names tables of this schema."""
        return self._wanted.names_schema(schema)

    @property
    def seen(self) -> SeenTables:
        """What this filter has seen so far."""
        return SeenTables(tuple(self._unmatched), tuple(self._others))

    def include(self, seen: SeenTables) -> None:
        """Add what another filter with the same patterns has seen, later in the log."""
        unmatched = frozenset(seen.unmatched)
        self._unmatched = dict.fromkeys(pattern for pattern in self._unmatched if pattern in unmatched)
        self._others.update(dict.fromkeys(seen.others[: max(_NAMES_KEPT - len(self._others), 0)]))

    def unmatched(self) -> list[tuple[str, str | None]]:
        """The patterns that matched no table so far, with the nearest name of a table that was not wanted.

        The names near to the first of them are searched: one of 1,000 names takes 15 ms.
        """
        return [
            (pattern, nearest_name(pattern, self._others) if number < _NEAREST else None)
            for number, pattern in enumerate(self._unmatched)
        ]


class _Patterns:
    """Finds the patterns that match a table; those that are names, or name a schema, without a look at all others."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._tables: dict[tuple[str, str], str] = {}
        self._schemas: dict[str, list[tuple[str, WantsTable]]] = {}
        self._others: list[tuple[str, WantsTable]] = []
        for pattern in patterns:
            schema, table = split_pattern(pattern)
            if is_exact(schema) and is_exact(table):
                self._tables[schema, table] = pattern
            elif is_exact(schema):
                self._schemas.setdefault(schema, []).append((pattern, _compile(pattern)))
            else:
                self._others.append((pattern, _compile(pattern)))
        self._names = {schema for schema, _ in self._tables} | self._schemas.keys()
        self._globs = [_matcher(split_pattern(pattern)[0]) for pattern, _ in self._others]

    def matching(self, schema: str, table: str) -> Iterator[str]:
        name = self._tables.get((schema, table))
        if name is not None:
            yield name
        for pattern, fits in (*self._schemas.get(schema, ()), *self._others):
            if fits(schema, table):
                yield pattern

    def names_schema(self, schema: str) -> bool:
        return schema in self._names or any(fits(schema) is not None for fits in self._globs)


def table_filter(tables: Sequence[str], exclude: Sequence[str] = ()) -> TableFilter | None:
    """The filter for these patterns; None if every table is wanted."""
    return None if "*" in tables and not exclude else TableFilter(tables, exclude)


def nearest_name(pattern: str, names: Iterable[str]) -> str | None:
    """The name that is most like the pattern; None if no name is much like it.

    A name that fits but for the case comes first. With lower_case_table_names=1 the log's names are in lower case.
    """
    from difflib import get_close_matches

    wanted, names = pattern.lower(), list(names)
    fits = _compile(wanted)
    near = {name for name in names if fits(*split_text(name.lower()))}
    if not near:
        # A pattern for all tables of a schema is compared with names of schemas.
        is_schema = wanted.endswith(".*")
        compared = {
            name: table_text(split_text(name.lower())[0], "*") if is_schema else name.lower()
            for name in names
        }
        found = get_close_matches(wanted, dict.fromkeys(compared.values()), 1)
        near = {name for name, text in compared.items() if text in found}
    return next((name for name in names if name in near), None)


def unmatched_text(pattern: str, nearest: str | None, where: str) -> str:
    """The warning about a pattern that matched no table of ``where``."""
    hint = "" if nearest is None else f" -- did you mean {nearest}?"
    return f"tables: {pattern!r} matches no table of {where}{hint}"


def split_pattern(pattern: str) -> tuple[str, str]:
    """The patterns of a pattern's schema and table; both are ``*`` for the pattern ``*``."""
    if pattern == "*":
        return "*", "*"
    schema, table = (
        part if (name := unquoted(part)) is None else _escaped(name) for part in written_parts(pattern)
    )
    return schema, table


def is_exact(part: str) -> bool:
    """Whether one of the two patterns of ``split_pattern`` has no wildcards."""
    return re.search(_WILDCARD, part) is None


def exact_pattern(schema: str, table: str) -> str:
    """A pattern that matches this table only, also in a list with commas."""
    text = table_text(schema, table)
    is_plain = re.search(r"[\s,*?\[]|\.\.", text) is None
    return text if is_plain else f"{in_backticks(schema)}.{in_backticks(table)}"


def _escaped(name: str) -> str:
    return re.sub(_WILDCARD, r"[\g<0>]", name)


def _compile(pattern: str) -> WantsTable:
    if pattern == "*":
        return lambda schema, table: True
    schema_pattern, table_pattern = split_pattern(pattern)
    fits_schema, fits_table = _matcher(schema_pattern), _matcher(table_pattern)
    return lambda schema, table: fits_schema(schema) is not None and fits_table(table) is not None


def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(translate(pattern)).match
