"""The offset of a stream: a place between two transactions in the log, as JSON in Spark's offset log.

    {"version": 1, "server_uuid": ..., "server_id": ..., "epoch": 0, "file": "binlog.000042", "position": 157,
     "gtid_set": ..., "file_begun": ...}

The same place always gives the same text: the keys are in this order, and GTID sets are as ``str`` writes them. The
last key is there only where its value is known: offsets of older releases lack it. This module parses and compares
offsets; it connects to no server.
"""

import json
from collections.abc import Mapping
from typing import Final, TypeVar

from protocol.errors import ConfigurationError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet, parse_gtid_set
from protocol.position import file_number
from protocol.records import field, record

from ..config.selection import named
from ..source.server_facts import Identity, Source

VERSION: Final = 1
_KEYS: Final = ("version", "server_uuid", "server_id", "epoch", "file", "position", "gtid_set")
_BEGUN: Final = "file_begun"

_T = TypeVar("_T")
# (epoch, file number, position): orders the offsets of one stream.
Key = tuple[int, int, int]


@record(frozen=True, slots=True)
class Offset:
    """A place in the log of one server: the next transaction begins at ``file`` and ``position``.

    ``gtid_set`` has all transactions before the place (None: not known). If ``file`` is empty, only ``gtid_set`` is
    known. ``epoch`` counts the servers that the stream has followed, one after another. ``file_begun`` is the time at
    which the server began ``file``, in seconds since 1970 (None: not known); see ``replica.source.same_log``.
    """

    file: str
    position: int
    gtid_set: str | None
    server_uuid: str | None
    server_id: int | None
    epoch: int = 0
    # Two offsets of one place may differ in what is known of the file.
    file_begun: int | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        """A sort key, which grows along the log."""
        return self.epoch, file_number(self.file), self.position

    @property
    def identity(self) -> Identity:
        """UUID and id of the server whose log has ``file``."""
        return self.server_uuid, self.server_id

    def is_of_log(self, other: "Offset") -> bool:
        """Whether both offsets are in the log of one server; see ``replica.source.resolve_start.is_same_server``."""
        pairs = zip(self.identity, other.identity, strict=True)
        return next((one == two for one, two in pairs if one is not None and two is not None), False)

    @property
    def gtids(self) -> AnyGtidSet | None:
        """The GTID set itself."""
        return None if self.gtid_set is None else parse_gtid_set(self.gtid_set)

    def is_sought_by_gtid(self, other: "Offset") -> bool:
        """Whether ``other``'s log must be read by this offset's GTID set, which leaves out transactions."""
        return not self.file or not self.is_of_log(other)

    def has_all_of(self, other: "Offset") -> bool:
        """Whether this offset's GTID set contains that of ``other``.

        False for anonymous transactions, which a server never leaves out.
        """
        gtids, others = self.gtids, other.gtids
        if isinstance(gtids, GtidSet) and isinstance(others, GtidSet):
            return others <= gtids
        return isinstance(gtids, MariadbGtidSet) and isinstance(others, MariadbGtidSet) and others <= gtids

    def to_dict(self) -> dict[str, str | int | None]:
        """The offset as plain values, with the keys in their order, ready for JSON."""
        values = (
            *(VERSION, self.server_uuid, self.server_id, self.epoch),
            *(self.file, self.position, self.gtid_set),
        )
        found: dict[str, str | int | None] = dict(zip(_KEYS, values, strict=True))
        return found if self.file_begun is None else found | {_BEGUN: self.file_begun}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Offset":
        """The reverse of ``to_dict``. Raises ``ConfigurationError`` if malformed or of an unknown version."""
        if data.get("version") != VERSION:
            raise ConfigurationError(
                f"the offset has the version {data.get('version')!r}; this release reads version {VERSION}"
            )
        if set(data) - {_BEGUN} != set(_KEYS):
            raise ConfigurationError(
                f"the keys of an offset must be {', '.join(_KEYS)}, not {', '.join(sorted(data))}"
            )
        offset = cls(
            file=_of_type(data, "file", str),
            position=_of_type(data, "position", int),
            gtid_set=None if data["gtid_set"] is None else _of_type(data, "gtid_set", str),
            server_uuid=None if data["server_uuid"] is None else _of_type(data, "server_uuid", str),
            server_id=None if data["server_id"] is None else _of_type(data, "server_id", int),
            epoch=_of_type(data, "epoch", int),
            file_begun=None if data.get(_BEGUN) is None else _of_type(data, _BEGUN, int),
        )
        if offset.position < 0 or offset.epoch < 0:
            raise ConfigurationError(
                f"position and epoch of an offset must be 0 or more, not {offset.position} and {offset.epoch}"
            )
        offset.gtids  # noqa: B018 -- raises for a malformed GTID set
        return offset

    @classmethod
    def at(cls, source: Source, file: str, position: int, gtids: AnyGtidSet | None) -> "Offset":
        """A place in the log of this source."""
        text = None if gtids is None else str(gtids)
        return cls(file, position, text, source.server_uuid, source.server_id)


def parse_offset(name: str, text: str) -> Offset | None:
    """An offset from an option's JSON; None if it is ``latest`` or ``earliest``."""
    if text in ("latest", "earliest"):
        return None
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{name}: must be latest, earliest or an offset's JSON, not {text!r}")
    return named(name, Offset.from_dict, data)


def _of_type(data: Mapping[str, object], key: str, kind: type[_T]) -> _T:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ConfigurationError(f"{key} of an offset must be a {kind.__name__}, not {value!r}")
    return value
