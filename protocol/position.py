"""Positions in a source's binary log (file and offset), and checkpoints, at which a replica resumes.

A position is valid in one server's log only. A checkpoint therefore also names the server, and the GTID set of the
transactions before it. Nothing here reads or writes files.
"""

from collections.abc import Mapping
from functools import total_ordering
from re import fullmatch
from typing import Final

from .constants import BINLOG_MAGIC
from .errors import ConfigurationError
from .gtid import parse_gtid_set
from .records import record

CHECKPOINT_VERSION = 1
# Attributes of a checkpoint that its stored form has only where they are known.
_OPTIONAL: Final = frozenset({"snapshot", "file_begun"})
_CHECKSUM: Final = "checksum"

_POSITION = r"((?s:.+)):([0-9]{1,20})"
# Servers stop at 0x7FFFFFFF (MAX_LOG_UNIQUE_FN_EXT).
_NUMBERED_FILE = r"((?s:.*))\.([0-9]{1,10})"

#: The position of a binlog file's first event: after the magic bytes.
FIRST_POSITION: Final = len(BINLOG_MAGIC)
#: Bytes of a binlog file's name, or of its path (FN_REFLEN).
FILE_NAME_LIMIT: Final = 512


def split_file_name(name: str) -> tuple[str, str]:
    """The base name and the number of a binlog file: ``("binlog", "000042")``; ``(name, "")`` without a number."""
    found = fullmatch(_NUMBERED_FILE, name)
    return (found[1], found[2]) if found else (name, "")


def file_with_number(base: str, digits: str, number: int) -> str:
    """The name of another file of the same log; ``digits`` is the number of one of its files, with leading zeros."""
    return f"{base}.{number:0{len(digits)}d}"


def file_number(name: str) -> int:
    """The number after the last dot of a binlog file's name; 0 if there is none."""
    return int(split_file_name(name)[1] or 0)


def is_older(name: str, other: str) -> bool:
    """Whether a file of the log comes before another one; False if they are of different logs."""
    return split_file_name(name)[0] == split_file_name(other)[0] and file_number(name) < file_number(other)


@total_ordering
@record(slots=True, frozen=True)
class BinlogPosition:
    """The byte offset ``position`` in the binlog file ``file``: ``binlog.000003:154``.

    Positions in files of one base name are ordered by the number after the last dot: ``binlog.999999`` comes
    before ``binlog.1000000``. Positions in files of other names cannot be compared (``ConfigurationError``).
    """

    file: str
    position: int

    def __post_init__(self) -> None:
        is_typed = isinstance(self.file, str) and isinstance(self.position, int)
        if not (is_typed and self.file and self.position >= 0):
            raise ConfigurationError(f"not a binlog position: file {self.file!r}, offset {self.position!r}")

    @classmethod
    def parse(cls, text: str) -> "BinlogPosition":
        """Read ``file:offset``; ``ConfigurationError`` on anything else."""
        found = fullmatch(_POSITION, text.strip()) if isinstance(text, str) else None
        if not found:
            raise ConfigurationError(f"not a binlog position (file:offset): {text!r}")
        return cls(found[1], int(found[2]))

    def __lt__(self, other: "BinlogPosition") -> bool:
        if not isinstance(other, BinlogPosition):
            return NotImplemented
        if self.file == other.file:
            return self.position < other.position
        (mine, number), (others, other_number) = split_file_name(self.file), split_file_name(other.file)
        if mine != others or not number or not other_number:
            raise ConfigurationError(
                f"{self} and {other} cannot be ordered: their files are of different logs, or log_bin was renamed -- "
                "start in a file of the new name, and stop there"
            )
        return int(number) < int(other_number)

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


@record(slots=True, frozen=True)
class Checkpoint:
    """A point between two transactions, at which a replica resumes.

    ``file`` and ``position`` are the start of the next transaction in the log of the server that
    ``server_uuid`` (MySQL) or ``server_id`` names. ``gtid_set`` is the GTID set, as text, of all transactions before
    it; None if the source has no GTIDs. ``version`` is the version of the stored form. ``snapshot`` is the state of
    an initial copy, as text; None without one. ``file_begun`` is the time at which the source began ``file``, in
    seconds since 1970; None if it is not known. It tells the file from one of the same name after RESET.
    """

    file: str
    position: int
    gtid_set: str | None = None
    server_uuid: str | None = None
    server_id: int | None = None
    version: int = CHECKPOINT_VERSION
    snapshot: str | None = None
    file_begun: int | None = None

    def to_dict(self) -> dict[str, str | int | None]:
        """Plain values under the attributes' names, ready for JSON; ``snapshot`` and ``file_begun`` only if known."""
        values: dict[str, str | int | None] = {name: getattr(self, name) for name in self.__match_args__}
        return {name: value for name, value in values.items() if value is not None or name not in _OPTIONAL}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Checkpoint":
        """The reverse of ``to_dict``; ``ConfigurationError`` for missing keys, wrong values and unknown versions.

        The ``checksum`` that a checkpoint file has beside them is not looked at: ``FileCheckpointStore`` does that.
        """
        if not isinstance(data, Mapping):
            raise ConfigurationError(f"a checkpoint must be what to_dict() returns, not {data!r}")
        version = data.get("version")
        if version != CHECKPOINT_VERSION:
            raise ConfigurationError(
                f"the checkpoint has version {version!r}; this library reads version {CHECKPOINT_VERSION}"
            )
        names, given = set(cls.__match_args__), set(map(str, data)) - {_CHECKSUM}
        if unknown := sorted(given - names):
            raise ConfigurationError(
                f"this library knows no {', '.join(unknown)} of a checkpoint: if a later mysql-replica wrote it, "
                "upgrade"
            )
        if names != given | _OPTIONAL:
            names -= _OPTIONAL
            raise ConfigurationError(f"a checkpoint must have the keys {sorted(names)}, not {sorted(given)}")
        checkpoint = cls(
            file=_text(data, "file"),
            position=_number(data, "position"),
            gtid_set=None if data["gtid_set"] is None else _text(data, "gtid_set"),
            server_uuid=None if data["server_uuid"] is None else _text(data, "server_uuid"),
            server_id=None if data["server_id"] is None else _number(data, "server_id"),
            snapshot=None if data.get("snapshot") is None else _text(data, "snapshot"),
            file_begun=None if data.get("file_begun") is None else _number(data, "file_begun"),
        )
        if checkpoint.gtid_set is not None:
            parse_gtid_set(checkpoint.gtid_set)
        return checkpoint


def _text(data: Mapping[str, object], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise ConfigurationError(f"a checkpoint's {key} must be text, not {value!r}")
    return value


def _number(data: Mapping[str, object], key: str) -> int:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"a checkpoint's {key} must be an integer of 0 or more, not {value!r}")
    return value
