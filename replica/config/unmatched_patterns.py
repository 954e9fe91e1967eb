"""Warnings about patterns of ``tables=`` that match no table: the table may be misspelt, or be made later."""

import logging
from collections.abc import Collection, Iterable
from typing import Final

from .log_facts import log_facts
from .options import Options
from .table_filter import TableFilter, table_filter, unmatched_text

_LOGGER: Final = logging.getLogger(__name__)
# Nobody has told the tables of these.
_HIDDEN: Final = ("sys.", "information_schema.", "performance_schema.")


def warn_of_unknown(options: Options, tables: Collection[tuple[str, str]]) -> None:
    """Log a warning for each pattern that matches none of the source's ``tables``, those that the user may see."""
    wants_table = table_filter(options.tables)
    if wants_table is None or not tables:
        return
    for table in tables:
        wants_table(*table)
    for pattern, nearest in wants_table.unmatched():
        if not pattern.startswith(_HIDDEN):
            _warn(pattern, nearest, f"{options.address} that {options.user} may see", options.address)


def warn_of_unmatched(
    wants_table: TableFilter | None, address: str, copied: Iterable[tuple[str, str]]
) -> None:
    """At the end of a stream: log a warning for each pattern without a table, while one of a similar name came.

    Tables of an initial copy count, also without a change.
    """
    if wants_table is None:
        return
    for table in copied:
        wants_table(*table)
    for pattern, nearest in wants_table.unmatched():
        if nearest is not None:
            _warn(pattern, nearest, "the log that was read", address)


def _warn(pattern: str, nearest: str | None, where: str, address: str) -> None:
    text = unmatched_text(pattern, nearest, where)
    facts = log_facts("pattern-unmatched", source=address, pattern=pattern, nearest=nearest)
    _LOGGER.warning("%s", text, extra=facts)
