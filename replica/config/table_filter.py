"""Table filter: turns ``"schema.table"`` patterns into one predicate, which the decoder calls once per table."""

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Final

from protocol.binlog.decoder import WantsTable

_WILDCARD: Final = r"[*?\[]"


def table_filter(tables: Sequence[str], exclude: Sequence[str] = ()) -> WantsTable | None:
    """A predicate over schema and table name; None if every table is wanted.

    A pattern has two parts in the syntax of ``fnmatch.fnmatchcase``: the schema before the first dot, the table after
    it. ``"*"`` alone matches every table. A table is wanted if it matches a pattern of ``tables`` and none of
    ``exclude``.
    """
    if "*" in tables and not exclude:
        return None
    wanted, unwanted = [_compile(pattern) for pattern in tables], [_compile(pattern) for pattern in exclude]

    def wants_table(schema: str, table: str) -> bool:
        return any(fits(schema, table) for fits in wanted) and not any(
            fits(schema, table) for fits in unwanted
        )

    return wants_table


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
    fits_schema = re.compile(translate(schema_pattern)).match
    fits_table = re.compile(translate(table_pattern)).match
    return lambda schema, table: fits_schema(schema) is not None and fits_table(table) is not None
