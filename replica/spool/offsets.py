"""Where a stream stands in the log: a place between two transactions, as Spark's offset log keeps it.

    {"version": 1, "server_uuid": ..., "server_id": ..., "epoch": 0, "file": "binlog.000042", "position": 157,
     "gtid_set": ...}

Always the same text for the same place: keys in this order, GTID sets as ``str`` gives them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from protocol.errors import ConfigurationError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet, parse_gtid_set
from replica.source.server_facts import Source

VERSION: Final = 1
_KEYS: Final = ("version", "server_uuid", "server_id", "epoch", "file", "position", "gtid_set")
_NUMBERED: Final = re.compile(r".*\.([0-9]{1,10})", re.DOTALL)

_T = TypeVar("_T")
# What offsets of one stream are ordered by.
Key = tuple[int, int, int]


def file_number(name: str) -> int:
    """The number behind the last dot of a log file's name; 0 if there is none."""
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class Offset:
    """``file`` and ``position`` are where the next transaction begins in the log of that server.

    An empty ``file`` says that only ``gtid_set`` is known, which holds all transactions before that place (None:
    not known). ``epoch`` counts the servers that the stream has had one after another.
    """

    file: str
    position: int
    gtid_set: str | None
    server_uuid: str | None
    server_id: int | None
    epoch: int = 0

    @property
    def key(self) -> Key:
        """Grows along the log."""
        return self.epoch, file_number(self.file), self.position

    @property
    def identity(self) -> tuple[str | None, int | None]:
        """Whose log ``file`` and ``position`` are of."""
        return self.server_uuid, self.server_id

    def is_of_log(self, other: "Offset") -> bool:
        """Whether both are of the log of one server: as ``replica.source.resolve_start.is_same_server`` has it."""
        pairs = zip(self.identity, other.identity, strict=True)
        return next((one == two for one, two in pairs if one is not None and two is not None), False)

    @property
    def gtids(self) -> AnyGtidSet | None:
        """The GTID set itself."""
        return None if self.gtid_set is None else parse_gtid_set(self.gtid_set)

    def is_sought_by_gtid(self, other: "Offset") -> bool:
        """Whether the other place's log is read from here on by GTID set: then some of it is left out."""
        return not self.file or not self.is_of_log(other)

    def has_all_of(self, other: "Offset") -> bool:
        """Whether all transactions that are known to be before the other place are before this one, too.

        Anonymous ones are not: they are never left out.
        """
        gtids, others = self.gtids, other.gtids
        if isinstance(gtids, GtidSet) and isinstance(others, GtidSet):
            return others <= gtids
        return isinstance(gtids, MariadbGtidSet) and isinstance(others, MariadbGtidSet) and others <= gtids

    def to_dict(self) -> dict[str, str | int | None]:
        """Plain values in their order, ready for JSON."""
        values = (
            *(VERSION, self.server_uuid, self.server_id, self.epoch),
            *(self.file, self.position, self.gtid_set),
        )
        return dict(zip(_KEYS, values, strict=True))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Offset":
        """The reverse of ``to_dict``. Raises ``ConfigurationError`` for what is none, or of a later version."""
        if data.get("version") != VERSION:
            raise ConfigurationError(f"an offset of version {data.get('version')!r}; {VERSION} is known")
        if set(data) != set(_KEYS):
            raise ConfigurationError(
                f"an offset has the keys {', '.join(_KEYS)}, not {', '.join(sorted(data))}"
            )
        offset = cls(
            file=_of_type(data, "file", str),
            position=_of_type(data, "position", int),
            gtid_set=None if data["gtid_set"] is None else _of_type(data, "gtid_set", str),
            server_uuid=None if data["server_uuid"] is None else _of_type(data, "server_uuid", str),
            server_id=None if data["server_id"] is None else _of_type(data, "server_id", int),
            epoch=_of_type(data, "epoch", int),
        )
        if offset.position < 0 or offset.epoch < 0:
            raise ConfigurationError("an offset's position and epoch are numbers from 0 on")
        offset.gtids  # noqa: B018 -- raises for what is no GTID set
        return offset

    @classmethod
    def at(
        cls, source: Source, file: str, position: int, gtids: AnyGtidSet | None, epoch: int = 0
    ) -> "Offset":
        """A place in the log of this source."""
        text = None if gtids is None else str(gtids)
        return cls(file, position, text, source.server_uuid, source.server_id, epoch)


def parse_offset(name: str, text: str) -> Offset | None:
    """An offset from an option's JSON; None if it is ``latest`` or ``earliest``."""
    if text in ("latest", "earliest"):
        return None
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{name}: latest, earliest or an offset's JSON, not {text!r}")
    return Offset.from_dict(data)


def parse_time(name: str, text: str) -> str:
    """A time as ``LiveLog.find`` takes it. Raises ``ConfigurationError`` unless it has its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ConfigurationError(
            f"{name}: a time with its zone, such as 2026-01-31T12:00:00+00:00, not {text!r}"
        )
    return moment.isoformat()


def _of_type(data: Mapping[str, object], key: str, kind: type[_T]) -> _T:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ConfigurationError(f"an offset's {key} is a {kind.__name__}, not {value!r}")
    return value
