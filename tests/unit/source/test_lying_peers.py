"""Fuzzers of whole conversations, within limits of processor time and memory: only errors of the tree come out."""

from __future__ import annotations

import pytest

from tests.support.limited_steps import run_limited

FUZZERS = ["tests.faults.lying_source:steps", "tests.faults.lying_client:steps"]


def fuzz(fuzzer: str, seconds: float, seed: int) -> None:
    assert run_limited(fuzzer, seed=seed, seconds=seconds) > seconds


@pytest.mark.thorough
@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_conversations_with_liars(fuzzer: str, seed: int) -> None:
    fuzz(fuzzer, seconds=15, seed=seed)


@pytest.mark.long
@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_conversations_with_liars_for_an_hour(fuzzer: str, seed: int) -> None:
    fuzz(fuzzer, seconds=1800, seed=seed)
