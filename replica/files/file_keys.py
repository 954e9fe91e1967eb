"""The keys of encrypted files, as users give them: ``keyring`` and ``key_file`` of ``open_binlog``."""

import os
from collections.abc import Mapping

from protocol.binlog.keys import LogKeys, parse_key_file, parse_keyring
from protocol.errors import ConfigurationError
from protocol.records import record

from ..config.selection import read_path, wrong_value
from .log_files import read_whole


@record(slots=True, frozen=True)
class KeyFile:
    """An encrypted key file of MariaDB's file_key_management.

    ``path`` is the file's path, ``secret`` the value of file_key_management_filekey, ``iterations`` that of
    file_key_management_use_pbkdf2 (0: not used).
    """

    path: str | os.PathLike[str]
    secret: str = ""
    iterations: int = 0


def read_keys(
    keyring: str | os.PathLike[str] | bytes | Mapping[str, bytes] | None,
    key_file: str | os.PathLike[str] | KeyFile | Mapping[int, bytes] | None,
) -> LogKeys:
    """Read the key files. Raises ``ConfigurationError``, naming the option, for what holds no keys."""
    if isinstance(keyring, str | os.PathLike):
        keyring = parse_keyring(read_whole(read_path("keyring", keyring)))
    if isinstance(key_file, str | os.PathLike):
        key_file = KeyFile(key_file)
    if isinstance(key_file, KeyFile):
        if not isinstance(key_file.secret, str) or type(key_file.iterations) is not int:
            raise ConfigurationError("key_file: the secret of a KeyFile is a text, and iterations a number")
        data = read_whole(read_path("key_file", key_file.path))
        key_file = parse_key_file(data, key_file.secret.encode(), key_file.iterations)
    # Messages do not show keys.
    if not (key_file is None or _are_keys(key_file, int)):
        raise wrong_value(
            "key_file", type(key_file), "a path, a KeyFile or a mapping of numbers to keys (bytes)"
        )
    if isinstance(keyring, bytes):
        return LogKeys({}, key_file or {}, keyring)
    if not (keyring is None or _are_keys(keyring, str)):
        raise wrong_value(
            "keyring", type(keyring), "a path, a key (bytes) or a mapping of key ids to keys (bytes)"
        )
    return LogKeys(keyring or {}, key_file or {})


def _are_keys(keys: object, kind: type) -> bool:
    return isinstance(keys, Mapping) and all(
        isinstance(name, kind) and isinstance(key, bytes) for name, key in keys.items()
    )
