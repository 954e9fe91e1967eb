"""Ed25519 signatures from a password of any length, as MariaDB's ``client_ed25519`` makes them.

RFC 8032 hashes a seed of 32 bytes into the expanded key; MariaDB hashes the password instead
(``plugin/auth_ed25519/ref10/sign.c``), so a password of 32 bytes gives the signatures of the same seed. The rest
is RFC 8032, section 5.1. ``cryptography`` accepts seeds only, not an expanded key; so the arithmetic is done here.

This is not a general signature library: Python's integers do not run in constant time. Each multiplication adds a
random multiple of the group's order to the scalar, which leaves the product unchanged, and does the same steps for
each bit. So the times that a listener measures at several logins do not add up to the key. A signature takes 7 ms
(AMD EPYC).
"""

import hashlib
import os
from typing import Final

# The field's prime, the order of the base point, the curve's constant d doubled, and the base point.
_P: Final = 2**255 - 19
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_TWICE_D: Final = 2 * -121665 * pow(121666, -1, _P) % _P
_BASE_X: Final = 0x216936D3CD6E53FEC0A4E231FDD6DC5C692CC7609525A7B2C9562D608F25D51A
_BASE_Y: Final = 4 * pow(5, -1, _P) % _P
_BLINDING_BITS: Final = 64

# Extended coordinates: x = X / Z, y = Y / Z, x * y = T / Z (RFC 8032, 5.1.4).
_Point = tuple[int, int, int, int]
_BASE: Final[_Point] = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)
_NEUTRAL: Final[_Point] = (0, 1, 1, 0)


def public_key(password: bytes) -> bytes:
    """The 32 bytes that the server stores for a password (in base64, as ``authentication_string``)."""
    scalar, _ = _expand(password)
    return _encode(_multiply_base(scalar))


def sign(password: bytes, message: bytes) -> bytes:
    """The signature, 64 bytes, of a message of any length."""
    scalar, prefix = _expand(password)
    key = _encode(_multiply_base(scalar))
    secret = _hash(prefix + message)
    commitment = _encode(_multiply_base(secret))
    challenge = _hash(commitment + key + message)
    return commitment + ((secret + challenge * scalar) % _ORDER).to_bytes(32, "little")


def _expand(password: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(password).digest()
    scalar = int.from_bytes(digest[:32], "little")
    # A multiple of 8 with the highest bit at 254.
    return scalar & ((1 << 254) - 8) | 1 << 254, digest[32:]


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % _ORDER


def _multiply_base(scalar: int) -> _Point:
    blinding = int.from_bytes(os.urandom(_BLINDING_BITS // 8), "little")
    scalar += _ORDER * (blinding | 1 << _BLINDING_BITS)
    point = _NEUTRAL
    for index in reversed(range(scalar.bit_length())):
        point = _add(point, point)
        # Both points are computed; the bit chooses one.
        point = (point, _add(point, _BASE))[scalar >> index & 1]
    return point


def _add(left: _Point, right: _Point) -> _Point:
    """RFC 8032, 5.1.4: the addition is complete, so it also doubles a point."""
    x1, y1, z1, t1 = left
    x2, y2, z2, t2 = right
    a = (y1 - x1) * (y2 - x2) % _P
    b = (y1 + x1) * (y2 + x2) % _P
    c = t1 * _TWICE_D * t2 % _P
    d = 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _encode(point: _Point) -> bytes:
    x, y, z, _ = point
    inverse = pow(z, -1, _P)
    return (y * inverse % _P | (x * inverse % _P & 1) << 255).to_bytes(32, "little")
