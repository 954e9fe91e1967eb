"""An RSA key of a server, made once, and the decryption that goes with it."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.fake_source import NONCE

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def decrypt(data: bytes) -> bytes:
    """Decrypts and removes the nonce, as the server does."""
    clear = KEY.decrypt(data, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
    return bytes(byte ^ NONCE[index % 20] for index, byte in enumerate(clear))
