"""Names of temporary tables in logged statements: CREATE TABLE ... LIKE such a name may mean the table or them."""

from collections.abc import Iterable
from typing import Final

from ..sql.token_reader import TableName

_MOST: Final = 1000


class TemporaryNames:
    """Which names temporary tables have had in the log, of whatever session; all names, if those are too many."""

    def __init__(self) -> None:
        self._names: set[TableName] = set()

    def add(self, tables: Iterable[TableName]) -> None:
        """Some have these names, or may have them."""
        if len(self._names) < _MOST:
            self._names.update(tables)

    def __contains__(self, table: TableName) -> bool:
        return table in self._names or len(self._names) >= _MOST
