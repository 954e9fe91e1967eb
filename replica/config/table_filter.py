"""Table filter: turns ``"schema.table"`` patterns into one predicate, which the decoder calls once per table."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Final

from protocol.binlog.decoder import WantsTable
from protocol.records import record

_WILDCARD: Final = r"[*?\[]"
# Of so many of the tables that no pattern matched, the nearest names are searched.
_NAMES_KEPT: Final = 1000


@record(frozen=True, slots=True)
class SeenTables:
    """What a filter has seen: the patterns that matched no table, and tables that no pattern matched."""

    unmatched: tuple[str, ...]
    others: tuple[str, ...]


class TableFilter:
    """Whether a table is wanted; remembers which patterns have matched.

    A pattern has two parts in the syntax of ``fnmatch.fnmatchcase``: the schema before the first dot, the table after
    it. ``"*"`` alone matches every table. A table is wanted if it matches a pattern of ``tables`` and none of
    ``exclude``.
    """

    def __init__(self, tables: Sequence[str], exclude: Sequence[str] = ()) -> None:
        self._wanted = [(pattern, _compile(pattern)) for pattern in tables]
        self._unwanted = [_compile(pattern) for pattern in exclude]
        self._schemas = [_matcher(pattern.partition(".")[0]) for pattern in tables]
        self._unmatched = dict.fromkeys(tables)
        self._others: dict[str, None] = {}

    def __call__(self, schema: str, table: str) -> bool:
        found = False
        for pattern, fits in self._wanted:
            if fits(schema, table):
                self._unmatched.pop(pattern, None)
                found = True
        if not found and len(self._others) < _NAMES_KEPT:
            self._others[f"{schema}.{table}"] = None
        return found and not any(fits(schema, table) for fits in self._unwanted)

    def may_want_tables_of(self, schema: str) -> bool:
        """Whether a pattern names tables of this schema."""
        return any(fits(schema) is not None for fits in self._schemas)

    @property
    def seen(self) -> SeenTables:
        """What this filter has seen so far."""
        return SeenTables(tuple(self._unmatched), tuple(self._others))

    def include(self, seen: SeenTables) -> None:
        """Add what another filter with the same patterns has seen, later in the log."""
        self._unmatched = dict.fromkeys(pattern for pattern in self._unmatched if pattern in seen.unmatched)
        self._others.update(dict.fromkeys(seen.others[: max(_NAMES_KEPT - len(self._others), 0)]))

    def unmatched(self) -> list[tuple[str, str | None]]:
        """The patterns that matched no table so far, each with the nearest name of a table that was not wanted."""
        return [(pattern, nearest_name(pattern, self._others)) for pattern in self._unmatched]


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
    near = {name for name in names if fits(*name.lower().split(".", 1))}
    if not near:
        # A pattern for all tables of a schema is compared with names of schemas.
        is_schema = wanted.endswith(".*")
        compared = {
            name: name.lower().partition(".")[0] + ".*" if is_schema else name.lower() for name in names
        }
        found = get_close_matches(wanted, dict.fromkeys(compared.values()), 1)
        near = {name for name, text in compared.items() if text in found}
    return next((name for name in names if name in near), None)


def unmatched_text(pattern: str, nearest: str | None, where: str) -> str:
    """The warning about a pattern that matched no table of ``where``."""
    hint = "" if nearest is None else f" -- did you mean {nearest}?"
    return f"tables: {pattern!r} matches no table of {where}{hint}"


def is_exact(pattern: str) -> bool:
    """Whether a pattern, or one of its two parts, has no wildcards."""
    return re.search(_WILDCARD, pattern) is None


def exact_pattern(name: str) -> str:
    """A pattern that matches this name only."""
    return re.sub(_WILDCARD, r"[\g<0>]", name)


def _compile(pattern: str) -> WantsTable:
    if pattern == "*":
        return lambda schema, table: True
    schema_pattern, _, table_pattern = pattern.partition(".")
    fits_schema, fits_table = _matcher(schema_pattern), _matcher(table_pattern)
    return lambda schema, table: fits_schema(schema) is not None and fits_table(table) is not None


def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(translate(pattern)).match
