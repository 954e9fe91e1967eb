"""Event handlers: registered by event class and table, called one after another. This module reads no stream."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from protocol.binlog.decoder import WantsTable
from protocol.binlog.events import Event, RowsEvent, TableMapEvent
from protocol.errors import ConfigurationError
from protocol.records import record

from ..config.selection import table_patterns
from ..config.table_filter import table_filter

AnyEvent = TypeVar("AnyEvent", bound=Event)
#: A function or coroutine function that takes one event. Its result is ignored.
Handler = Callable[[AnyEvent], object]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., object])


@record(frozen=True, slots=True)
class _Registration:
    event_class: type[Event]
    wants_table: WantsTable | None
    handler: Callable[[Any], object]


class Handlers:
    """The handlers of one stream, in the order in which they were registered."""

    def __init__(self) -> None:
        self._registrations: list[_Registration] = []
        self._by_class: dict[type[Event], list[_Registration]] = {}

    def add(
        self, event_class: type[AnyEvent], table: str | Iterable[str] | None, handler: Handler[AnyEvent]
    ) -> None:
        """Call ``handler`` with each event of this class or a subclass, if its table matches ``table``.

        Raises ``ConfigurationError`` if the class is not an event class, or ``table`` is given for events that belong
        to no table.
        """
        if not (isinstance(event_class, type) and issubclass(event_class, Event)):
            raise ConfigurationError(f"on(): give an event class, not {event_class!r}")
        wants_table = None
        if table is not None:
            if not issubclass(event_class, RowsEvent | TableMapEvent):
                raise ConfigurationError(
                    f"on(): {event_class.__name__} belongs to no table: leave out table="
                )
            wants_table = table_filter(table_patterns("table", table))
        self._registrations.append(_Registration(event_class, wants_table, handler))
        self._by_class.clear()

    async def call(self, event: Event) -> None:
        """Call all handlers registered for the event. An exception of a handler goes on to the caller."""
        registrations = self._by_class.get(type(event))
        if registrations is None:
            registrations = self._by_class[type(event)] = [
                registration
                for registration in self._registrations
                if issubclass(type(event), registration.event_class)
            ]
        for registration in registrations:
            if registration.wants_table is not None:
                table = event.table  # type: ignore[attr-defined]
                if not registration.wants_table(table.schema, table.name):
                    continue
            result = registration.handler(event)
            if inspect.isawaitable(result):
                await result
