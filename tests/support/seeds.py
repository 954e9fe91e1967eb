"""The seed of randomised tests: always the same one, but with ``--long``: then another one each time."""

from __future__ import annotations

import os
import random

#: The environment variable that repeats a run with its seed.
VARIABLE = "TEST_SEED"
_USUAL = 1


def chosen_seed(*, is_random: bool) -> int:
    """The seed that ``TEST_SEED`` gives; without it the usual one, or a random one."""
    given = os.environ.get(VARIABLE)
    if given:
        return int(given)
    return random.SystemRandom().randrange(1 << 32) if is_random else _USUAL
