"""The tables that a copy was begun with, as its checkpoint keeps them: the patterns of ``tables=`` and
``exclude_tables=``. A stream that goes on may select others.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from protocol.binlog.decoder import WantsTable

from ..config.table_filter import TableFilter

# Longer patterns are kept as a digest: a checkpoint is written for each transaction.
_MOST_PLAIN: Final = 400


def selection_text(tables: Sequence[str], exclude: Sequence[str]) -> str:
    """The patterns as text: equal texts select the same tables."""
    return _text([[sorted(set(tables)), sorted(set(exclude))]])


def both_select(one: str, other: str) -> str:
    """The text that selects the tables which both selections select. It ends in the patterns of ``other``."""
    if one == other or not (_is_told(one) and _is_told(other)):
        return other
    both = json.loads(one)
    # A stream that starts again and again adds its own patterns once.
    newest = json.loads(other)
    return _text([pair for pair in both if pair not in newest] + newest)


def selected_by(text: str) -> WantsTable | None:
    """The filter of a selection; None if the text is a digest of long patterns, or empty.

    Raises ``ValueError`` and ``TypeError`` for any other text.
    """
    if not _is_told(text):
        return None
    selections: list[list[list[Any]]] = json.loads(text)
    filters = [TableFilter(*([str(one) for one in part] for part in pair)) for pair in selections]
    return lambda schema, name: all(wants(schema, name) for wants in filters)


def _is_told(text: str) -> bool:
    return text.startswith("[")


def _text(selections: list[list[list[str]]]) -> str:
    text = json.dumps(selections, separators=(",", ":"))
    return text if len(text) <= _MOST_PLAIN else sha256(text.encode()).hexdigest()
