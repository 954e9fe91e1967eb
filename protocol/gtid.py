"""GTIDs and GTID sets of MySQL and MariaDB, as text and as bytes.

A MySQL GTID is ``uuid:sequence`` or, since 8.3, ``uuid:tag:sequence``, and a MySQL GTID set holds intervals of
sequences. A MariaDB GTID is ``domain-server-sequence``, and a MariaDB set holds the last GTID of each domain.
``parse_gtid_set`` tells the two forms apart. This module knows no events and no connections.

The text follows MySQL's ``sql/rpl_gtid_set.cc`` (``add_gtid_text``, ``to_string``) and
``libs/mysql/gtid/{tsid,tag}.cpp``; the bytes follow ``Gtid_set::encode`` and ``add_gtid_encoding`` there.
"""

import struct
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from re import finditer, fullmatch
from typing import Any, ClassVar, NamedTuple, TypeVar

from .errors import ConfigurationError, DecodeError
from .intervals import are_within, cover, difference, intervals_text, union
from .records import record
from .wire import Reader

# GNO_END in sql/rpl_gtid.h: the first number after the last valid sequence.
SEQUENCE_END = (1 << 63) - 1

_TAG_MAX_LENGTH = 32
# The text of a source's last bounds is not kept, because new transactions change them: of this many bounds when the
# text is made, and of up to twice as many after further ones have come.
_TAIL = 32
# Characters of a text that an error message quotes.
_LONGEST_QUOTED = 100
_TAGGED_FORMAT = 1

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TAG = r"[a-z_][a-z0-9_]{0,31}"
_PART = r":([^:]*)"
_MOST_DIGITS = 19
_INTERVAL = r"([0-9]{1,19})(?:\s*-\s*([0-9]{1,19}))?"
_MARIADB_GTID = r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})"

_AnyGtid = TypeVar("_AnyGtid", "Gtid", "MariadbGtid")

_unpack_interval = struct.Struct("<QQ").iter_unpack


@record(slots=True, frozen=True)
class Gtid:
    """One transaction of a MySQL source: ``3e11fa47-71ca-11e1-9e33-c80aa9429562:23`` or ``...:tag:23``.

    ``source_id`` is the server_uuid of the server that committed the transaction first. ``sequence`` counts from 1.
    ``tag`` (8.3 and later) is empty for a GTID without a tag.
    """

    source_id: uuid.UUID
    sequence: int
    tag: str = ""

    @classmethod
    def parse(cls, text: str) -> "Gtid":
        """Read ``uuid:sequence`` or ``uuid:tag:sequence``; ``ConfigurationError`` on anything else."""
        parsed = GtidSet(text)
        match list(parsed.intervals()):
            case [Interval(source_id, tag, first, last)] if first == last:
                return cls(source_id, first, tag)
        raise ConfigurationError(f"not the GTID of a single transaction: {text!r}")

    def __str__(self) -> str:
        return f"{_tsid_text(self.source_id, self.tag)}:{self.sequence}"


class _OpenGtid:
    """A ``Gtid`` while it is filled: a frozen class's constructor takes three times as long, 0.4 us a transaction."""

    __slots__ = ("sequence", "source_id", "tag")


@lru_cache(maxsize=256)
def uuid_of(data: bytes) -> uuid.UUID:
    """Cached: a log names few servers, and a new UUID takes 1.3 us."""
    return uuid.UUID(bytes=data)


def new_gtid(source_id: bytes, sequence: int, tag: str = "") -> Gtid:
    """The ``Gtid`` of an event; ``source_id`` is the UUID's 16 bytes as they are logged."""
    gtid: Any = _OpenGtid()
    gtid.source_id = uuid_of(source_id)
    gtid.sequence = sequence
    gtid.tag = tag
    gtid.__class__ = Gtid
    return gtid  # type: ignore[no-any-return]


class Interval(NamedTuple):
    """Consecutive transactions of one source and tag, ``first`` and ``last`` included."""

    source_id: uuid.UUID
    tag: str
    first: int
    last: int


class GtidSet:
    """A set of MySQL transactions, kept as intervals. Mutable, so not hashable.

    ``GtidSet("uuid:1-5:7, uuid:tag:1")`` or ``GtidSet(gtids)``. Its text is the server's, on one line.
    """

    # For each source and tag the bounds of its intervals in one strictly rising list, [start, end, start, end...],
    # starts included, ends excluded. A number is inside an interval when an odd count of bounds is less than or
    # equal to it. So adding an interval is two bisections and one slice.
    # ``_heads`` has for each list, in the same order, a number of bounds and their text, which copies share: without
    # it a checkpoint after each transaction took 5 ms for 2,000 sources.
    __slots__ = ("_ends", "_heads")
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, content: "str | Iterable[Gtid]" = "") -> None:
        self._ends: dict[tuple[uuid.UUID, str], list[int]] = {}
        self._heads: dict[tuple[uuid.UUID, str], tuple[int, str]] | None = None
        if isinstance(content, str):
            self._add_text(content)
        else:
            for gtid in _each(content, Gtid):
                self.add(gtid)

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """Read a set's text; whitespace, letter case and the order of its parts do not matter.

        Raises ``ConfigurationError`` for anything else, and for an interval that ends before it starts, which
        the server reads as an empty interval.
        """
        return cls(text)

    def _add_text(self, text: str) -> None:
        late: dict[tuple[uuid.UUID, str], list[tuple[int, int]]] = {}
        for item in text.split(","):
            if item.strip():
                for source_id, tag, first, last in _read_item(item):
                    ends = self._ends.setdefault((source_id, tag), [])
                    # A server writes them in rising order. To keep them in a list first took 100 bytes for each.
                    if not ends or ends[-1] < first:
                        ends += (first, last + 1)
                    else:
                        late.setdefault((source_id, tag), []).append((first, last + 1))
        self._add_late(late)

    def _add_late(self, late: dict[tuple[uuid.UUID, str], list[tuple[int, int]]]) -> None:
        """Add bounds of intervals that did not come in rising order, to sources and tags that the set has."""
        for key, intervals in late.items():
            # In rising order each interval is added at the end. In the order in which they came 400,000 falling
            # intervals took 20 s.
            rest: list[int] = []
            for start, end in sorted(intervals):
                cover(rest, start, end)
            self._ends[key] = union(self._ends[key], rest)

    def copy(self) -> "GtidSet":
        """An independent set with the same transactions."""
        heads = self._texts()
        result = self._copied()
        result._heads = heads
        return result

    def _copied(self) -> "GtidSet":
        result = GtidSet()
        result._ends = {key: ends.copy() for key, ends in self._ends.items()}
        return result

    def add(self, gtid: Gtid) -> None:
        """Add one transaction, in place."""
        # A stream mostly adds a source's next sequence, which takes 0.25 us however large the set is;
        # to add elsewhere in a set of 10,000 intervals takes 1.6 us.
        sequence = gtid.sequence
        ends = self._ends.get((gtid.source_id, gtid.tag))
        if ends is not None and ends[-1] == sequence:
            ends[-1] = sequence + 1
        else:
            self.add_interval(gtid.source_id, sequence, sequence, gtid.tag)

    def add_interval(self, source_id: uuid.UUID, first: int, last: int, tag: str = "") -> None:
        """Add the transactions ``first`` to ``last``, both included, in place."""
        if not 0 < first <= last < SEQUENCE_END:
            raise ConfigurationError(f"not an interval of transactions: {first}-{last}")
        key = source_id, tag
        ends = self._ends.setdefault(key, [])
        if self._heads is not None:
            count, _ = self._heads.get(key, (len(ends) + 1, ""))
            if not count <= bisect_left(ends, first) or len(ends) > count + 2 * _TAIL:
                self._heads = None
        cover(ends, first, last + 1)

    def intervals(self) -> Iterator[Interval]:
        """All intervals, sorted by source, tag and sequence."""
        for (source_id, tag), ends in sorted(self._ends.items()):
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                yield Interval(source_id, tag, start, end - 1)

    def of_source(self, source_id: uuid.UUID) -> "GtidSet":
        """The transactions of this set that one source committed first."""
        result = GtidSet()
        result._ends = {key: list(ends) for key, ends in self._ends.items() if key[0] == source_id}
        return result

    def __contains__(self, gtid: Gtid) -> bool:
        ends = self._ends.get((gtid.source_id, gtid.tag), ())
        return bisect_right(ends, gtid.sequence) % 2 == 1

    def __or__(self, other: "GtidSet") -> "GtidSet":
        """The transactions of either set."""
        result = self._copied()
        for key, ends in other._ends.items():
            result._ends[key] = union(result._ends.get(key, []), ends)
        return result

    def __sub__(self, other: "GtidSet") -> "GtidSet":
        """The transactions of this set that the other one lacks."""
        result = self._copied()
        for key in result._ends.keys() & other._ends.keys():
            result._ends[key] = difference(result._ends[key], other._ends[key])
            if not result._ends[key]:
                del result._ends[key]
        return result

    def __and__(self, other: "GtidSet") -> "GtidSet":
        """The transactions that both sets have."""
        return self - (self - other)

    def __le__(self, other: "GtidSet") -> bool:
        """Whether the other set has every transaction of this one."""
        return all(are_within(ends, other._ends.get(key, [])) for key, ends in self._ends.items())

    def __eq__(self, other: object) -> bool:
        return self._ends == other._ends if isinstance(other, GtidSet) else NotImplemented

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __str__(self) -> str:
        parts = zip(self._texts().values(), self._ends.values(), strict=True)
        return "".join([head + intervals_text(ends[count:]) for (count, head), ends in parts])

    def _texts(self) -> dict[tuple[uuid.UUID, str], tuple[int, str]]:
        if self._heads is None:
            self._ends, self._heads = dict(sorted(self._ends.items())), {}
            previous = None
            for (source_id, tag), ends in self._ends.items():
                count = max(len(ends) - _TAIL, 0)
                head = f"{',' if previous else ''}{_tsid_text(source_id, tag)}"
                head = f":{tag}" if source_id == previous else head
                self._heads[source_id, tag] = count, head + intervals_text(ends[:count])
                previous = source_id
        return self._heads

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"

    def encode(self) -> bytes:
        """The set as COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS carry it.

        A set without tags has the form that every server with GTIDs reads. A set with tags has the form of 8.3
        and later, in which a tag follows each UUID (``Gtid_format::tagged``).
        """
        tagged = any(tag for _, tag in self._ends)
        count = len(self._ends)
        if tagged:
            # The format number is in the lowest and in the highest byte (encode_nsids_format).
            count = _TAGGED_FORMAT << 56 | count << 8 | _TAGGED_FORMAT
        chunks = [count.to_bytes(8, "little")]
        for (source_id, tag), ends in sorted(self._ends.items()):
            chunks.append(source_id.bytes)
            if tagged:
                # The length is a variable-length integer of mysql::serialization: below 128, the number doubled.
                chunks.append(bytes([len(tag) << 1]) + tag.encode("ascii"))
            chunks.append(struct.pack(f"<{len(ends) + 1}Q", len(ends) // 2, *ends))
        return b"".join(chunks)

    @classmethod
    def decode(cls, data: bytes) -> "GtidSet":
        """Read what ``encode`` writes, in either form; all of ``data`` must be used up.

        Raises ``TruncatedError`` for data cut short, ``DecodeError`` for an encoding that the server calls malformed.
        """
        reader = Reader(data)
        count = reader.uint(8)
        set_format = count >> 56
        if set_format > _TAGGED_FORMAT:
            raise DecodeError(f"a GTID set has the unknown format {set_format}")
        if set_format == _TAGGED_FORMAT:
            count = count >> 8 & (1 << 48) - 1
        result = cls()
        # Of sources that come again, which no server writes.
        late: dict[tuple[uuid.UUID, str], list[tuple[int, int]]] = {}
        for _ in range(count):
            source_id = uuid.UUID(bytes=reader.take(16))
            key = source_id, _read_tag(reader) if set_format == _TAGGED_FORMAT else ""
            intervals = list(_unpack_interval(reader.take(16 * reader.uint(8))))
            previous = 0
            for start, end in intervals:
                if not previous < start < end <= SEQUENCE_END:
                    raise DecodeError(f"a GTID set has an interval out of order: {start} to {end}")
                previous = end
            if not intervals:
                continue
            if key in result._ends:
                late.setdefault(key, []).extend(intervals)
                continue
            result._ends[key] = list(chain.from_iterable(intervals))
        reader.expect_end()
        result._add_late(late)
        return result


def _each(content: Iterable[_AnyGtid], kind: type[_AnyGtid]) -> Iterator[_AnyGtid]:
    """The GTIDs that a set is made of. Raises ``ConfigurationError`` for anything else."""
    is_many = isinstance(content, Iterable) and not isinstance(content, bytes | bytearray)
    for gtid in content if is_many else (content,):
        if not isinstance(gtid, kind):
            raise ConfigurationError(
                f"a GTID set is made of its text or of {kind.__name__}s, not of {gtid!r}"
            )
        yield gtid


def _read_item(item: str) -> Iterator[Interval]:
    """The intervals of one UUID: ``uuid:1-5:7:tag:1``."""
    item, is_ascii = item.lower(), item.isascii()
    colon = item.find(":")
    head = (item if colon < 0 else item[:colon]).strip()
    if not fullmatch(_UUID, head):
        raise ConfigurationError(f"each part of a GTID set starts with a UUID, not with {_short(head)!r}")
    source_id, tag = uuid.UUID(head), ""
    # One part after the other: all of them in a list take ten times the memory of the text.
    for found in finditer(_PART, item):
        part = found[1].strip()
        if is_ascii and part.isdigit() and len(part) <= _MOST_DIGITS:
            # Twice as fast as by the pattern.
            first = last = int(part)
        elif interval := fullmatch(_INTERVAL, part):
            first = int(interval[1])
            last = int(interval[2]) if interval[2] else first
        elif fullmatch(_TAG, part):
            tag = part
            continue
        else:
            raise ConfigurationError(
                f"neither an interval nor a tag: {_short(part)!r} in {_short(item.strip())!r}"
            )
        if not 0 < first <= last < SEQUENCE_END:
            raise ConfigurationError(f"not an interval of transactions: {part!r} in {_short(item.strip())!r}")
        yield Interval(source_id, tag, first, last)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}..."


def _tsid_text(source_id: uuid.UUID, tag: str) -> str:
    return f"{source_id}:{tag}" if tag else str(source_id)


def _read_tag(reader: Reader) -> str:
    """The tag after its length byte; ``DecodeError`` for a tag that no server writes."""
    length = reader.u8()
    # An odd first byte starts a length of two bytes or more, and no tag is that long.
    if length & 1 or length >> 1 > _TAG_MAX_LENGTH:
        raise DecodeError(f"a GTID tag has the invalid length byte 0x{length:02x}")
    return checked_tag(reader.take(length >> 1).decode("latin-1"))


def checked_tag(tag: str) -> str:
    """The tag of a logged GTID; empty for one without. ``DecodeError`` for a tag that no server writes."""
    if tag and not fullmatch(_TAG, tag):
        raise DecodeError(f"not a GTID tag: {_short(tag)!r}")
    return tag


@record(slots=True, frozen=True)
class MariadbGtid:
    """One transaction of a MariaDB source: ``0-1-100``.

    ``domain_id`` is the replication domain, ``server_id`` the id of the server that committed the transaction first.
    ``sequence`` counts within the domain.
    """

    domain_id: int
    server_id: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "MariadbGtid":
        """Read ``domain-server-sequence``; ``ConfigurationError`` on anything else."""
        found = fullmatch(_MARIADB_GTID, text.strip()) if isinstance(text, str) else None
        if found:
            domain_id, server_id, sequence = map(int, found.groups())
            # uint32, uint32 and uint64: rpl_gtid in MariaDB's sql/rpl_gtid.h.
            if domain_id < 1 << 32 and server_id < 1 << 32 and sequence < 1 << 64:
                return cls(domain_id, server_id, sequence)
        raise ConfigurationError(f"not a MariaDB GTID (domain-server-sequence): {text!r}")

    def __str__(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.sequence}"


class _OpenMariadbGtid:
    __slots__ = ("domain_id", "sequence", "server_id")


def new_mariadb_gtid(domain_id: int, server_id: int, sequence: int) -> MariadbGtid:
    """``MariadbGtid(domain_id, server_id, sequence)``, made in the fast way of ``new_gtid``."""
    gtid: Any = _OpenMariadbGtid()
    gtid.domain_id = domain_id
    gtid.server_id = server_id
    gtid.sequence = sequence
    gtid.__class__ = MariadbGtid
    return gtid  # type: ignore[no-any-return]


class MariadbGtidSet:
    """The last transaction of each domain; all earlier ones of the domain are included. Mutable, so not hashable.

    ``MariadbGtidSet("0-1-100,1-2-5")`` or ``MariadbGtidSet(gtids)``. If several ``gtids`` have the same domain, the
    last of them counts, as in a GTID_LIST event.
    """

    __slots__ = ("_last",)
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, content: "str | Iterable[MariadbGtid]" = "") -> None:
        self._last: dict[int, MariadbGtid] = {}
        if isinstance(content, str):
            for item in content.split(",") if content.strip() else ():
                gtid = MariadbGtid.parse(item)
                # The server refuses this too: ER_DUPLICATE_GTID_DOMAIN.
                if gtid.domain_id in self._last:
                    raise ConfigurationError(f"two GTIDs of domain {gtid.domain_id}: {content!r}")
                self.add(gtid)
        else:
            for gtid in _each(content, MariadbGtid):
                self.add(gtid)

    @classmethod
    def parse(cls, text: str) -> "MariadbGtidSet":
        """Read a set's text; ``ConfigurationError`` if it is malformed or names a domain twice."""
        return cls(text)

    def copy(self) -> "MariadbGtidSet":
        """An independent set with the same transactions."""
        result = MariadbGtidSet()
        result._last = self._last.copy()
        return result

    def add(self, gtid: MariadbGtid) -> None:
        """Make this the last transaction of its domain, in place.

        Without gtid_strict_mode the sequence may be lower than the previous one; the GTID still becomes the last.
        """
        self._last[gtid.domain_id] = gtid

    def __iter__(self) -> Iterator[MariadbGtid]:
        """The last transaction of each domain, in the order of the domains."""
        return (gtid for _, gtid in sorted(self._last.items()))

    def __contains__(self, gtid: MariadbGtid) -> bool:
        last = self._last.get(gtid.domain_id)
        return last is not None and gtid.sequence <= last.sequence

    def __le__(self, other: "MariadbGtidSet") -> bool:
        """Whether the other set has every domain of this one, at the same or a higher sequence."""
        return all(gtid in other for gtid in self._last.values())

    def __eq__(self, other: object) -> bool:
        return self._last == other._last if isinstance(other, MariadbGtidSet) else NotImplemented

    def __bool__(self) -> bool:
        return bool(self._last)

    def __str__(self) -> str:
        return ",".join([f"{one.domain_id}-{one.server_id}-{one.sequence}" for one in self])

    def __repr__(self) -> str:
        return f"MariadbGtidSet({str(self)!r})"


AnyGtidSet = GtidSet | MariadbGtidSet


def parse_gtid_set(text: str) -> AnyGtidSet:
    """Read a MySQL or a MariaDB GTID set; the form of the text decides. The empty text is MySQL's empty set.

    Raises ``ConfigurationError`` for a text of neither form.
    """
    first = text.partition(",")[0].strip()
    return MariadbGtidSet(text) if fullmatch(_MARIADB_GTID, first) else GtidSet(text)
