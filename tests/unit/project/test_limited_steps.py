"""The process of the fuzzers does end a step that takes too much CPU or memory, or that raises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.limited_steps import CPU_SECONDS, MEMORY, Step, run_limited

HERE = "tests.unit.project.test_limited_steps"


def harmless(seed: int) -> Iterator[Step]:
    while True:
        yield "harmless", lambda: bytearray(1 << 20)


def busy(seed: int) -> Iterator[Step]:
    yield "short", lambda: None

    def turn() -> None:
        while True:
            pass

    yield f"busy {seed}", turn


def large(seed: int) -> Iterator[Step]:
    yield "large", lambda: bytearray(MEMORY)


def wrong(seed: int) -> Iterator[Step]:
    yield from ((f"right {number}", lambda: None) for number in range(3))
    yield "wrong", lambda: [][seed]


def test_harmless_steps_pass() -> None:
    assert run_limited(f"{HERE}:harmless", seed=1, most_steps=5) == 5
    assert run_limited(f"{HERE}:harmless", seed=1, seconds=0.1) > 1


@pytest.mark.thorough
def test_a_step_that_takes_too_much_cpu_fails() -> None:
    with pytest.raises(AssertionError, match=rf"step 1 \(busy 7\): more than {CPU_SECONDS} s of CPU"):
        run_limited(f"{HERE}:busy", seed=7)


def test_a_step_that_takes_too_much_memory_fails() -> None:
    with pytest.raises(AssertionError, match=r"seed 3, step 0 \(large\): exit code 1[^$]*MemoryError"):
        run_limited(f"{HERE}:large", seed=3)


def test_a_step_that_raises_fails() -> None:
    with pytest.raises(AssertionError, match=r"step 3 \(wrong\): exit code 1[^$]*IndexError"):
        run_limited(f"{HERE}:wrong", seed=3)
    assert run_limited(f"{HERE}:wrong", seed=3, most_steps=2, first_step=1) == 2
