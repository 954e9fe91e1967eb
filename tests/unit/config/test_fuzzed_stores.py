"""Damage to the files that the library keeps on a disk: the right outcome, or an error that says what to do."""

from __future__ import annotations

import pytest

from tests.support.limited_steps import run_limited

STEPS = "tests.faults.store_fuzzer:steps"


def test_some_damage(seed: int, thorough: bool) -> None:
    steps = 1000 if thorough else 60
    assert run_limited(STEPS, seed=seed, most_steps=steps) == steps


@pytest.mark.long
def test_damage_for_ten_minutes(seed: int) -> None:
    assert run_limited(STEPS, seed=seed, seconds=600) > 1000
