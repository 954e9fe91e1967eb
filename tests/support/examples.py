"""How many random examples a test draws: a multiple of what the run asks for."""

from __future__ import annotations

import hypothesis


def times(factor: float) -> hypothesis.settings:
    """So many times the examples of the loaded profile: 100 in the whole suite, 25 in the quick form."""
    profile = hypothesis.settings.default
    assert profile is not None
    return hypothesis.settings(max_examples=round(factor * profile.max_examples))
