"""The tables that the text of a statement may name, for statements that are logged without their rows. Pure: no I/O.

A statement is not parsed for that: a word in a literal counts, too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from protocol.binlog.events import QueryEvent
from protocol.errors import StatementFormatError

from .transaction_touches import TableId

# What stands between two marks or spaces of a statement.
_WORD: Final = re.compile(r"[\w$]+")


class NamedTables:
    """Finds tables by the words of their names: a statement costs its words, not the number of tables."""

    def __init__(self, tables: Iterable[TableId]) -> None:
        # By the longest word of the table's name.
        self._by_word: dict[str, list[TableId]] = {}
        for table in tables:
            word = max(_WORD.findall(table[1].casefold()), key=len, default="")
            self._by_word.setdefault(word, []).append(table)

    def named_in(self, sql: str, schema: str) -> Iterator[TableId]:
        """The tables that a statement with this current schema may name."""
        text, default = sql.casefold(), schema.casefold()
        for word in {"", *_WORD.findall(text)}:
            for table in self._by_word.get(word, ()):
                is_in_schema = default == table[0].casefold() or _has_word(text, table[0])
                if is_in_schema and _has_word(text, table[1]):
                    yield table


def without_rows(event: QueryEvent, table: TableId) -> StatementFormatError:
    """The error for a table that is copied while such a statement changes its rows."""
    return StatementFormatError(
        f"rows of {'.'.join(table)} were changed by a statement that is logged without its rows, at "
        f"{event.file}:{event.position}, while the table is copied: SET GLOBAL binlog_format=ROW on the source, "
        "reconnect its sessions, FLUSH BINARY LOGS, and copy the tables again"
    )


def _has_word(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(name.casefold())}(?![\w$])", text) is not None
