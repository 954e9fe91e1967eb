"""``on_status`` raises before the stream has connected: nothing is open, and nothing says so."""

from __future__ import annotations

import gc
import warnings

import pytest

import replica


class HookError(Exception):
    """What the hook raises."""


def refuse(status: replica.StreamStatus) -> None:
    raise HookError(status.state)


async def test_no_stream_is_left_unclosed() -> None:
    """It was a ResourceWarning about an unclosed stream."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(HookError, match="connecting"):
            async with replica.connect("mysql://repl@127.0.0.1:1", on_status=refuse):
                raise AssertionError
        gc.collect()
    assert [str(one.message) for one in found] == []
