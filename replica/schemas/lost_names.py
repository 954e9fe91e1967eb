"""Tables of the log whose columns are not known: the error, with what helps, and when to ask the source again."""

from typing import Final

from protocol.binlog.events import TableMapEvent
from protocol.errors import SchemaMismatchError
from protocol.position import BinlogPosition

from ..sql.token_reader import TableName
from .catalog import Unknown
from .proof import first_difference
from .shape import Shape
from .timeline import State

_MOST_TABLES: Final = 100_000
_MOST_DOUBLINGS: Final = 20


class NamelessTables:
    """Tables that the source was asked about without success, and how far the log was followed then.

    The answer may change after a statement of the log: a GRANT, or a statement about the table. But a source may have
    many tables that the user cannot see, and asking about each of them after each statement would take long. So,
    where there is little hope, the number of statements between two questions doubles.
    """

    def __init__(self) -> None:
        # By table: the place up to which the answer holds, the numbers of statements and grants before the question,
        # and the number of questions since the last grant.
        self._asked: dict[TableName, tuple[BinlogPosition, int, int, int]] = {}

    def is_vain(
        self, table: TableName, place: BinlogPosition, statements: int, grants: int, *, is_known: bool
    ) -> bool:
        """Whether asking at a place, after so many statements and grants, would bring nothing new.

        ``is_known``: the history has the table there, though perhaps not its columns.
        """
        asked = self._asked.get(table)
        if asked is None:
            return False
        until, since, granted, times = asked
        if place >= until and (is_known or grants != granted):
            return statements == since
        return statements - since < 1 << times

    def note(
        self, table: TableName, place: BinlogPosition, until: BinlogPosition, statements: int, grants: int
    ) -> None:
        """Note a question at ``place``; its answer holds up to ``until`` unless a grant changes it."""
        _, _, granted, times = self._asked.pop(table, (place, 0, grants - 1, 0))
        times = min(times + 1, _MOST_DOUBLINGS) if grants == granted else 0
        self._asked[table] = until, statements, grants, times
        if len(self._asked) > _MOST_TABLES:
            del self._asked[next(iter(self._asked))]


def mismatch(
    event: TableMapEvent, states: tuple[State, ...], later: BinlogPosition | None, *, hides_columns: bool
) -> SchemaMismatchError:
    """The error of a table map that no known shape fits; ``later`` is the place at which the table changes next."""
    reasons = [first_difference(state, event.table) or "" for state in states if isinstance(state, Shape)]
    unsure = [name for state in states if isinstance(state, Shape) for name in state.untyped]
    if unsure:
        reasons.append(f"no statement tells the type or the labels of {', '.join(dict.fromkeys(unsure))}")
    reasons += [state.reason for state in states if isinstance(state, Unknown)]
    if later:
        reasons.append(f"the statement that ends at {later} changes the table and does not say what it was")
    if hides_columns:
        reasons.append(f"a user sees the columns that it may SELECT: GRANT SELECT ON {event.table} shows all")
    elif not (later or unsure) and not any(isinstance(state, Unknown) for state in states):
        reasons.append(
            "a statement that the log lacks has changed the table (sql_log_bin=0, a filter of the log)"
        )
    why = "; ".join(dict.fromkeys(filter(None, reasons)))
    return SchemaMismatchError(
        f"{event.table} at {event.file}:{event.position}: its columns there are not known "
        f'({why}). on_schema_mismatch="positional" names them @1, @2...; a schema '
        "store (schemas=) of a stream that was there before the change has their names; a new copy of the tables "
        '(start="snapshot") begins behind the change after FLUSH BINARY LOGS on the source'
    )
