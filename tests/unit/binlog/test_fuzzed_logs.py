"""Log files and events that lie, within limits of CPU and memory that end a reader that believes them."""

from __future__ import annotations

import pytest

from tests.support.limited_steps import run_limited

STEPS = "tests.faults.log_fuzzer:steps"


def test_some_log_files(seed: int, thorough: bool) -> None:
    steps = 400 if thorough else 30
    assert run_limited(STEPS, seed=seed, most_steps=steps) == steps


@pytest.mark.long
def test_log_files_for_an_hour(seed: int) -> None:
    assert run_limited(STEPS, seed=seed, seconds=3600) > 20
