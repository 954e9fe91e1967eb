"""Warns at the end of a stream of patterns that matched no table while a table of a similar name came."""

import logging
from typing import Final

from ..config.log_facts import log_facts
from ..config.table_filter import TableFilter, unmatched_text

_LOGGER: Final = logging.getLogger(__name__)


def warn_of_unmatched(wants_table: TableFilter | None, address: str) -> None:
    """Log a warning for each such pattern of ``tables``."""
    for pattern, nearest in wants_table.unmatched() if wants_table is not None else ():
        if nearest is not None:
            text = unmatched_text(pattern, nearest, "the log that was read")
            facts = log_facts("pattern-unmatched", source=address, pattern=pattern, nearest=nearest)
            _LOGGER.warning("%s", text, extra=facts)
