"""What every reader of bytes must survive, in one place: all cuts of a stream, truncation, and trailing bytes.

For messages, which are parsed whole, and for streams, which arrive in pieces. It knows no message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from protocol.errors import ProtocolError

Parsed = TypeVar("Parsed")


def check_parser(
    parse: Callable[[bytes], Parsed],
    payload: bytes,
    *,
    shortest: int | None = None,
    open_ended: bool = False,
    trailing: tuple[bytes, ...] = (b"\0", b"A", b"\xff"),
    error: type[Exception] = ProtocolError,
) -> Parsed:
    """Parse a whole payload, and see that it is refused, or read as something else, when cut or with a byte more.

    Cut below `shortest` bytes (the whole, if not given) it must be refused. `open_ended`: it ends with a string
    that takes everything, so that a byte of `trailing` belongs to it.
    """
    whole = parse(payload)
    for size in range(len(payload)):
        if shortest is None or size < shortest:
            with pytest.raises(error):
                parse(payload[:size])
        else:
            assert _parse_or_none(parse, payload[:size], error) != whole
    for tail in trailing:
        if open_ended:
            assert _parse_or_none(parse, payload + tail, error) != whole
        else:
            with pytest.raises(error):
                parse(payload + tail)
    return whole


def _parse_or_none(parse: Callable[[bytes], Parsed], payload: bytes, error: type[Exception]) -> Parsed | None:
    try:
        return parse(payload)
    except error:
        return None


def all_cuts(data: bytes, seed: int, random_cuts: int = 20) -> Iterator[list[bytes]]:
    """The stream in one piece, byte by byte, and cut at random places."""
    yield [data]
    yield [data[index : index + 1] for index in range(len(data))]
    print(f"seed {seed}")
    generator = random.Random(seed)
    for _ in range(random_cuts):
        places = sorted(generator.choices(range(len(data) + 1), k=generator.randrange(1, 12)))
        yield [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
