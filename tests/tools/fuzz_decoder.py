"""A fuzzer for the decoder that can run for hours: `python -m tests.tools.fuzz_decoder --seconds 3600`.

It damages real events (see ``damaged_events``) until the time is over, or until something escapes that is no error of
the tree; then it prints the event and the seed, and exits with 1. It is no part of the test suite, which runs the
same trials for a few seconds.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from protocol.constants import EVENT_HEADER_SIZE
from tests.support.damaged_events import Trial, changed, pick, with_checksum

_TRIALS_PER_TURN = 200


def fuzz(seconds: float, seed: int) -> int:
    """Returns the exit code."""
    generator = random.Random(seed)
    samples = [sample for sample in pick() if len(sample.raw) > EVENT_HEADER_SIZE]
    end = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    while time.monotonic() < end:
        sample, checksums = generator.choice(samples), generator.random() < 0.5
        trial = Trial(sample, checksums)
        for _ in range(_TRIALS_PER_TURN):
            damaged = changed(sample.raw, generator)
            raw = with_checksum(damaged) if checksums else damaged
            try:
                trial.run(raw)
            except Exception as error:
                print(f"seed {seed}: {error!r} from {raw.hex()} behind {[e.hex() for e in trial.context]}")
                return 1
        outcomes += trial.outcomes
    print(f"seed {seed}: {sum(outcomes.values())} damaged events, {dict(outcomes)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    return fuzz(arguments.seconds, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
