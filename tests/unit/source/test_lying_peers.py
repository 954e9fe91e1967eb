"""Fuzzers of whole conversations, within limits of processor time and memory: only errors of the tree come out."""

from __future__ import annotations

import random

import pytest

from tests.support.limited_steps import run_limited

FUZZERS = ["tests.faults.lying_source:steps", "tests.faults.lying_client:steps"]


def fuzz(fuzzer: str, seconds: float) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    assert run_limited(fuzzer, seed=seed, seconds=seconds) > seconds


@pytest.mark.thorough
@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_conversations_with_liars(fuzzer: str) -> None:
    fuzz(fuzzer, seconds=15)


@pytest.mark.long
@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_conversations_with_liars_for_an_hour(fuzzer: str) -> None:
    fuzz(fuzzer, seconds=1800)
