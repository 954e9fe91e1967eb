"""A digest of tables that wait: which tables of statements explain that it is another one."""

from __future__ import annotations

import random

from replica.snapshot.hidden_tables import _digest, _is_sum_of, digests_from


def test_some_of_the_touched_tables_explain_a_difference(seed: int) -> None:
    rng = random.Random(seed)
    tables = [("shop", f"t{number}") for number in range(60)]
    for _ in range(50):
        touched = rng.sample(tables, rng.randrange(1, 50))
        changed = rng.sample(touched, rng.randrange(1, len(touched) + 1))
        difference = 0
        for table in changed:
            difference ^= _digest(table)
        assert _is_sum_of(difference, map(_digest, touched))
        hidden = rng.choice([table for table in tables if table not in touched])
        assert not _is_sum_of(difference ^ _digest(hidden), map(_digest, touched))


def test_each_table_has_the_digest_of_those_from_it_on() -> None:
    digests = digests_from([("b", "a"), ("a", "b"), ("a", "bc")])
    assert digests["b", "a"] == _digest(("b", "a"))
    assert digests["a", "b"] == digests["a", "bc"] ^ _digest(("a", "b"))
    assert len(set(digests.values())) == 3
