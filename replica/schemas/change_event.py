"""``SchemaChangeEvent``: what a statement of the log did to a table. It is handed out behind the statement."""

from collections.abc import Callable, Iterable

from protocol.binlog.events import Event, QueryEvent
from protocol.records import record

from .catalog import TableChange, Unknown
from .shape import Shape


@record(slots=True)
class SchemaChangeEvent(Event):
    """A statement of the log has changed a table that the stream wants.

    ``schema`` and ``name`` are the table's. ``before`` and ``after`` are its shapes: None if there is no such table
    before or after; an object with a ``reason`` instead of columns if its columns are not known. ``sql`` is the
    statement. A RENAME is two events: one without ``after`` and with ``renamed_to``, one without ``before`` and with
    ``renamed_from`` (``schema.name``). This is no event of the log; ``file`` and ``position`` are those of the
    statement's event. A stream that starts in the past, farther back than its store (``schemas=``) reaches, has none
    for statements that come before the first rows without names. Files have them with
    ``open_binlog(..., schemas=...)``.
    """

    schema: str = ""
    name: str = ""
    before: Shape | Unknown | None = None
    after: Shape | Unknown | None = None
    sql: str = ""
    renamed_from: str | None = None
    renamed_to: str | None = None

    @property
    def table(self) -> str:
        """The table as ``schema.name``."""
        return f"{self.schema}.{self.name}"


def seen_changes(
    event: QueryEvent, changes: Iterable[TableChange], wants_table: Callable[[str, str], bool] | None
) -> list[SchemaChangeEvent]:
    """The events of a statement: for tables that are wanted, and changes that rows show."""
    return [
        _schema_change(event, change)
        for change in changes
        if change.table.name
        and (wants_table is None or wants_table(change.table.schema, change.table.name))
        and _is_seen(change)
    ]


def _is_seen(change: TableChange) -> bool:
    """Whether the change concerns more than keys and options that no row shows."""
    before, after = change.before, change.after
    if not isinstance(before, Shape) or not isinstance(after, Shape):
        return before != after
    return before.columns != after.columns or before.primary_key != after.primary_key


def _told(state: Shape | Unknown | None) -> Shape | Unknown | None:
    """The state for users, who get a shape only if it has all columns with their types."""
    if not isinstance(state, Shape) or state.is_whole:
        return state
    names = ", ".join(state.untyped)
    return Unknown(f"the types of these columns are not known: {names}" if names else "columns are not known")


def _schema_change(event: QueryEvent, change: TableChange) -> SchemaChangeEvent:
    """The event for one table of a statement."""
    made, gone = change.renamed_from, change.renamed_to
    return SchemaChangeEvent(
        event.header,
        event.file,
        event.position,
        change.table.schema,
        change.table.name,
        _told(change.before),
        _told(change.after),
        event.sql,
        None if made is None else str(made),
        None if gone is None else str(gone),
    )
