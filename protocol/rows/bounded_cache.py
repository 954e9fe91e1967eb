"""``BoundedCache``: a dict that counts the bytes of its entries, and forgets the oldest when they are too many.

``remembered`` puts one in front of a function.

A cache that empties itself when it is full is of no use for a load slightly above its limit: 4,500 tables in rotation
took a hundred times as long as 4,000. This one keeps what fits.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

# What an entry takes in the dict and in the order of the entries.
_ENTRY_BYTES: Final = 250


class BoundedCache(dict[Key, Value]):
    """At most ``limit`` bytes of entries, the last one in any case.

    ``get`` is the dict's own: a look-up calls no Python function. Entries are added by ``keep`` only; ``forgotten``
    is called with each entry that makes room for others.
    """

    __slots__ = ("_forgotten", "_sizes", "limit", "total")

    def __init__(self, limit: int, forgotten: Callable[[Key, Value], None] | None = None) -> None:
        super().__init__()
        self.limit = limit
        #: Bytes of all entries, as ``keep`` was told.
        self.total = 0
        self._sizes: OrderedDict[Key, int] = OrderedDict()
        self._forgotten = forgotten

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Add an entry of ``size`` bytes, an estimate; replaces the key's entry. The oldest entries make room."""
        self.drop(key)
        self[key] = value
        self._sizes[key] = size + _ENTRY_BYTES
        self.total += size + _ENTRY_BYTES
        while self.total > self.limit and len(self._sizes) > 1:
            oldest, _ = next(iter(self._sizes.items()))
            old = self[oldest]
            self.drop(oldest)
            if self._forgotten is not None:
                self._forgotten(oldest, old)

    def drop(self, key: Key) -> None:
        """Remove an entry, if it is there."""
        size = self._sizes.pop(key, None)
        if size is not None:
            self.total -= size
            del self[key]

    def clear(self) -> None:
        """Remove all entries."""
        super().clear()
        self._sizes.clear()
        self.total = 0

    # A key or constant by identity, not by content.
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def remembered(
    limit: int, size: Callable[[Key, Value], int]
) -> Callable[[Callable[[Key], Value]], Callable[[Key], Value]]:
    """A decorator like ``functools.lru_cache`` for a function of one argument that bounds bytes, not entries.

    ``size(argument, result)`` is how many bytes a result takes; ``limit`` is that of the cache.
    """

    def decorate(function: Callable[[Key], Value]) -> Callable[[Key], Value]:
        results: BoundedCache[Key, Value] = BoundedCache(limit)

        @wraps(function)
        def look_up(argument: Key) -> Value:
            result = results.get(argument)
            if result is None:
                result = function(argument)
                results.keep(argument, result, size(argument, result))
            return result

        return look_up

    return decorate
