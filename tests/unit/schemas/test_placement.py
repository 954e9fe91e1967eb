"""Known columns are placed among those of the log as in every way to place them, and with little work."""

from __future__ import annotations

import random
from itertools import combinations

from replica.schemas.placement import placed

ROUNDS, COLUMNS = 400, 4_000


def in_every_way(known: str, logged: str) -> list[str | None] | None:
    """The same as ``placed``, from all ways to place the known columns."""
    ways = [
        dict(zip(places, known, strict=True))
        for places in combinations(range(len(logged)), len(known))
        if all(logged[place] == one for place, one in zip(places, known, strict=True))
    ]
    if not ways:
        return None
    numbers = [
        {tuple(way).index(place) if place in way else None for way in ways} for place in range(len(logged))
    ]
    return [
        known[number] if len(found) == 1 and (number := next(iter(found))) is not None else None
        for found in numbers
    ]


def test_each_way_to_place_them(seed: int) -> None:
    rng, counts = random.Random(seed), {"placed": 0, "unsure": 0, "impossible": 0}
    for _ in range(ROUNDS):
        logged = "".join(rng.choice("aab") for _ in range(rng.randint(0, 7)))
        kept = [one for one in logged if rng.random() < 0.7]
        known = "".join(rng.choice("ab") if rng.random() < 0.1 else one for one in kept)
        known += "a" * (rng.random() < 0.1)
        found = placed(known, logged, lambda one, other: one == other)
        assert found == in_every_way(known, logged), (known, logged)
        counts["impossible" if found is None else "unsure" if None in found else "placed"] += 1
    assert all(counts.values()), counts


def test_a_wide_table() -> None:
    """Each known column was compared with each of the log: 4,096 columns took minutes, at each statement."""
    calls = 0

    def fits(one: int, other: int) -> bool:
        nonlocal calls
        calls += 1
        return one % 3 == other % 3

    known = list(range(COLUMNS))
    assert placed(known, known, fits) == known
    assert calls == COLUMNS
    found = placed(known[:7] + known[9:], known, fits)
    assert found == [*known[:7], None, None, *known[9:]]
    assert calls < 5 * COLUMNS
