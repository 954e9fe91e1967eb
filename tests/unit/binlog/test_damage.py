"""Damaged events: every truncation of real events, and random byte changes. Only errors of the tree may escape."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import pytest

from protocol.constants import EVENT_HEADER_SIZE, EventType
from protocol.errors import ChecksumError
from tests.support.damaged_events import FILES, Sample, Trial, changed, pick, resized, with_checksum

CHANGES = 200

pytestmark = pytest.mark.skipif(not FILES.exists(), reason="the corpus is not here")


@pytest.fixture(scope="module")
def picked() -> list[Sample]:
    samples = pick()
    kinds = Counter(sample.type for sample in samples)
    print(f"{len(samples)} events of {len(kinds)} types: {dict(sorted(kinds.items()))}")
    return samples


@pytest.mark.parametrize("checksums", [False, True])
def test_truncations(picked: list[Sample], checksums: bool) -> None:
    outcomes: Counter[str] = Counter()
    for sample in picked:
        trial = Trial(sample, checksums)
        for size in range(EVENT_HEADER_SIZE, len(sample.raw)):
            cut = resized(sample.raw[:size])
            trial.run(with_checksum(cut) if checksums else cut)
            trial.run(sample.raw[:size])
        outcomes += trial.outcomes
    print(f"truncations, checksums {checksums}: {dict(outcomes)}")
    assert outcomes["TruncatedError"] > len(picked)


@pytest.mark.parametrize("checksums", [False, True])
def test_random_changes(picked: list[Sample], checksums: bool) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for sample in picked:
        if len(sample.raw) == EVENT_HEADER_SIZE:
            continue
        trial = Trial(sample, checksums)
        for _ in range(CHANGES):
            damaged = changed(sample.raw, generator)
            trial.run(with_checksum(damaged) if checksums else damaged)
        outcomes += trial.outcomes
    print(f"changes, checksums {checksums}: {dict(outcomes)}")
    assert outcomes["DecodeError"] > 0


def test_a_changed_byte_under_a_checksum_is_a_checksum_error(picked: list[Sample]) -> None:
    generator = random.Random(7)
    for sample in picked:
        trial = Trial(sample, True)
        whole = bytearray(with_checksum(sample.raw))
        if len(whole) == EVENT_HEADER_SIZE + 4:
            continue
        whole[generator.randrange(EVENT_HEADER_SIZE, len(whole))] ^= 1 << generator.randrange(8)
        for before in trial.context:
            trial.decoder.decode(before)
        with pytest.raises(ChecksumError):
            trial.decoder.decode(bytes(whole))


def test_memory_stays_within_ten_times_the_event(picked: list[Sample]) -> None:
    """The peak of the memory that decoding allocates; the limit leaves room for the objects of any event."""
    generator = random.Random(11)
    for sample in picked:
        if len(sample.raw) == EVENT_HEADER_SIZE or sample.type == EventType.TRANSACTION_PAYLOAD:
            continue
        trial = Trial(sample, False)
        trial.run(sample.raw)
        for _ in range(5):
            damaged = changed(sample.raw, generator)
            trial.run(damaged)
            tracemalloc.start()
            trial.run(damaged)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 10 * len(damaged) + 64 * 1024, (sample.type, peak)
