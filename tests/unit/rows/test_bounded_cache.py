"""Caches that count bytes forget the oldest entries, and functions behind them run once for what is kept."""

from protocol.rows.bounded_cache import BoundedCache, remembered


def test_the_oldest_make_room() -> None:
    gone: list[tuple[str, int]] = []
    cache: BoundedCache[str, int] = BoundedCache(2_000, lambda key, value: gone.append((key, value)))
    for number, key in enumerate("abcd"):
        cache.keep(key, number, 500)
    assert (dict(cache), gone) == ({"c": 2, "d": 3}, [("a", 0), ("b", 1)])
    cache.keep("large", 9, 1 << 30)
    assert dict(cache) == {"large": 9}


def test_a_function_that_is_remembered() -> None:
    calls: list[int] = []

    def size(argument: int, result: str) -> int:
        return len(result)

    @remembered(10_000, size)
    def repeated(count: int) -> str:
        """So many letters."""
        calls.append(count)
        return "a" * count

    assert [len(repeated(count)) for count in (1, 2, 1, 9_000, 2, 9_500, 9_000)] == [
        1,
        2,
        1,
        9_000,
        2,
        9_500,
        9_000,
    ]
    assert calls == [1, 2, 9_000, 9_500, 9_000]
    assert repeated.__doc__ == "So many letters."
