"""The error for a table of the log whose columns are not known: why that is so, and what helps."""

from protocol.binlog.events import TableMapEvent
from protocol.errors import SchemaMismatchError
from protocol.position import BinlogPosition

from .catalog import Unknown
from .proof import first_difference
from .shape import Shape
from .timeline import State


def mismatch(
    event: TableMapEvent, states: tuple[State, ...], later: list[BinlogPosition], *, hides_columns: bool
) -> SchemaMismatchError:
    """The error of a table map that no known shape fits; ``later`` are the places at which the table was changed."""
    reasons = [first_difference(state, event.table) or "" for state in states if isinstance(state, Shape)]
    reasons += [state.reason for state in states if isinstance(state, Unknown)]
    if later:
        reasons.append(
            f"the statement that ends at {later[0]} changes the table and does not say what it was"
        )
    if hides_columns:
        reasons.append(f"a user sees the columns that it may SELECT: GRANT SELECT ON {event.table} shows all")
    elif not later and not any(isinstance(state, Unknown) for state in states):
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
