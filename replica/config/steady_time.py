"""A clock that nobody sets: corrections of the time of day, by NTP say, do not move it."""

import time
from typing import Final

# Linux has a clock that goes on while the machine sleeps.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_time() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
