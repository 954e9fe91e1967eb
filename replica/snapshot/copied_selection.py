"""The tables that a copy was begun with, as its checkpoint keeps them: the patterns of ``tables=`` and
``exclude_tables=``. A stream that goes on may select others.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from protocol.binlog.decoder import WantsTable

from ..config.table_filter import TableFilter

# A checkpoint is written for each transaction: of longer patterns it keeps a digest only.
_MOST_PLAIN: Final = 400


def selection_text(tables: Sequence[str], exclude: Sequence[str]) -> str:
    """The patterns as text: equal texts select the same tables."""
    text = json.dumps([sorted(set(tables)), sorted(set(exclude))], separators=(",", ":"))
    return text if len(text) <= _MOST_PLAIN else sha256(text.encode()).hexdigest()


def selected_by(text: str) -> WantsTable | None:
    """The filter of a selection; None if the text does not tell it: one with long patterns, or none at all.

    Raises ``ValueError`` and ``TypeError`` for any other text.
    """
    if not text.startswith("["):
        return None
    patterns: list[list[Any]] = json.loads(text)
    tables, exclude = ([str(pattern) for pattern in part] for part in patterns)
    return TableFilter(tables, exclude)
