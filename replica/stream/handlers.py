"""Event handlers: registered by event class and table, called one after another. This module reads no stream."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from protocol.binlog.decoder import WantsTable
from protocol.binlog.events import Event, RowsEvent, TableMapEvent
from protocol.errors import ConfigurationError
from protocol.records import record

from ..config.selection import table_patterns
from ..config.table_filter import table_filter
from ..schemas.change_event import SchemaChangeEvent
from ..transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent

# Events that name a table.
_OF_TABLES: Final = (
    RowsEvent,
    TableMapEvent,
    SnapshotCompleteEvent,
    SnapshotRestartedEvent,
    SchemaChangeEvent,
)

AnyEvent = TypeVar("AnyEvent", bound=Event)
#: What a handler returns: None, or something to await.
Result = TypeVar("Result")


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
        self._are_run = False

    def begin(self) -> None:
        """Raise ``RuntimeError`` if a ``run()`` has begun before.

        It would return at once, as at the end of the log, and a loop that tries again after an error would stop.
        """
        if self._are_run:
            raise RuntimeError("a stream runs once: connect a new stream with start=stream.checkpoint")
        self._are_run = True

    def on(
        self, event_class: type[AnyEvent], table: str | Iterable[str] | None = None
    ) -> Callable[[Callable[[AnyEvent], Result]], Callable[[AnyEvent], Result]]:
        """A decorator: the function is called with each event of this class or a subclass, if its table matches.

        Raises ``ConfigurationError`` if the class is not an event class, if ``table`` is given for events that belong
        to no table, and, where it decorates a function whose annotation names another event class.
        """
        if not (isinstance(event_class, type) and issubclass(event_class, Event)):
            raise ConfigurationError(f"on(): give an event class, not {event_class!r}")
        wants_table = None
        if table is not None:
            if not issubclass(event_class, _OF_TABLES):
                raise ConfigurationError(
                    f"on(): {event_class.__name__} belongs to no table: leave out table="
                )
            wants_table = table_filter(table_patterns("table", table))

        def register(handler: Callable[[AnyEvent], Result]) -> Callable[[AnyEvent], Result]:
            _check_handler(event_class, handler)
            self._registrations.append(_Registration(event_class, wants_table, handler))
            self._by_class.clear()
            return handler

        return register

    async def call(self, event: Event) -> None:
        """Call all handlers registered for the event. An exception of a handler goes on to the caller."""
        for handler in self.matching(event):
            result = handler(event)
            if inspect.isawaitable(result):
                await result

    def matching(self, event: Event) -> Iterator[Callable[[Any], object]]:
        """The handlers registered for the event, in the order of registration."""
        registrations = self._by_class.get(type(event))
        if registrations is None:
            registrations = self._by_class[type(event)] = [
                registration
                for registration in self._registrations
                if issubclass(type(event), registration.event_class)
            ]
        for registration in registrations:
            if registration.wants_table is not None:
                table = event if isinstance(event, SchemaChangeEvent) else event.table  # type: ignore[attr-defined]
                if not registration.wants_table(table.schema, table.name):
                    continue
            yield registration.handler


def _check_handler(event_class: type[Event], handler: Callable[..., object]) -> None:
    """Refuse a handler that does not take one argument, or says that it takes other events."""
    name = getattr(handler, "__qualname__", repr(handler))
    try:
        parameters = list(inspect.signature(handler).bind(None).signature.parameters.values())
    except ValueError:
        return  # built-in functions have no signature
    except TypeError as error:
        raise ConfigurationError(f"on(): {name} is called with one event: {error}") from None
    function = getattr(handler, "__func__", handler)
    try:
        kind = get_type_hints(function).get(parameters[0].name)
    except (NameError, TypeError, AttributeError):
        return  # annotations of local names, or of an object that has none
    kinds = get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) is Union else (kind,)
    events = [kind for kind in kinds if isinstance(kind, type)]
    if len(events) == len(kinds) and not issubclass(event_class, tuple(events)):
        raise ConfigurationError(
            f"on(): {name} takes {' | '.join(kind.__name__ for kind in events)}, but is registered for "
            f"{event_class.__name__}: change the annotation or the event class"
        )
