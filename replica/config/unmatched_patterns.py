"""Warns at the end of a stream of patterns that matched no table while a table of a similar name came."""

import logging
from collections.abc import Iterable
from typing import Final

from ..config.log_facts import log_facts
from ..config.table_filter import TableFilter, unmatched_text

_LOGGER: Final = logging.getLogger(__name__)


def warn_of_unmatched(
    wants_table: TableFilter | None, address: str, copied: Iterable[tuple[str, str]]
) -> None:
    """Log a warning for each such pattern of ``tables``. Tables of an initial copy count, also without a change."""
    if wants_table is None:
        return
    for table in copied:
        wants_table(*table)
    for pattern, nearest in wants_table.unmatched():
        if nearest is not None:
            text = unmatched_text(pattern, nearest, "the log that was read")
            facts = log_facts("pattern-unmatched", source=address, pattern=pattern, nearest=nearest)
            _LOGGER.warning("%s", text, extra=facts)
