"""Log files and events that lie, within limits of CPU and memory that end a reader that believes them."""

from __future__ import annotations

import pytest

from tests.support.limited_steps import run_limited

STEPS = "tests.faults.log_fuzzer:steps"


def test_log_files_for_some_seconds(seed: int, thorough: bool) -> None:
    assert run_limited(STEPS, seed=seed, seconds=20 if thorough else 4) > 20


@pytest.mark.long
def test_log_files_for_an_hour(seed: int) -> None:
    assert run_limited(STEPS, seed=seed, seconds=3600) > 20
