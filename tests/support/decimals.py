"""DECIMAL values and their stored bytes, by the textbook."""

from __future__ import annotations

import decimal
from decimal import Decimal

from hypothesis import strategies as st


def encode_decimal(value: Decimal, precision: int, scale: int) -> bytes:
    """The stored bytes of a DECIMAL, by the textbook: groups of nine digits, sign bit, inversion."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    digits = f"{value.copy_abs():f}".replace(".", "")
    digits = digits.rjust(precision, "0")[-precision:]
    before, after = digits[: precision - scale], digits[precision - scale :]
    lead = len(before) % 9
    groups = [before[:lead]] + [before[at : at + 9] for at in range(lead, len(before), 9)]
    groups += [after[at : at + 9] for at in range(0, len(after), 9)]
    data = bytearray()
    for group in groups:
        data += int(group or "0").to_bytes(sizes[len(group)], "big")
    if value < 0:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[Decimal, int, int]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(38, precision)))
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    with decimal.localcontext(decimal.Context(prec=100)):
        return Decimal(unscaled).scaleb(-scale), precision, scale
