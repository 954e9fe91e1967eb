"""Real events of all kinds, and damage to them: what the damage tests and the fuzzer share.

The events are those of the demo's log, and of the corpus where it is there.

An event is damaged behind a header that still fits it, so that the damage reaches the parsers and not only the
check of the size; with checksums on, the checksum of the damaged event is right again.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from protocol.binlog.checksum import algorithm_of
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event, TransactionPayloadEvent
from protocol.constants import BINLOG_MAGIC, EVENT_HEADER_SIZE, EventType
from protocol.errors import DecodeError
from protocol.rows.compiler import RowCompiler
from replica.demo.log import read_log
from tests.support.places import CORPUS

FILES = CORPUS / "files"
EVENT_COUNT = 300
DEMO_EVENT_COUNT = 40
MAX_SIZE = 500
ROWS = frozenset(range(20, 26)) | frozenset(range(30, 33)) | {39} | frozenset(range(166, 172))


@dataclass(frozen=True)
class Sample:
    """An event without checksum, and the events before it that its decoding takes."""

    context: tuple[bytes, ...]
    raw: bytes

    @property
    def type(self) -> int:
        return self.raw[4]


def split(data: bytes) -> Iterator[bytes]:
    position = 4
    while position + EVENT_HEADER_SIZE <= len(data):
        size = int.from_bytes(data[position + 9 : position + 13], "little")
        if size < EVENT_HEADER_SIZE or position + size > len(data):
            return
        yield data[position : position + size]
        position += size


def resized(raw: bytes) -> bytes:
    return raw[:9] + len(raw).to_bytes(4, "little") + raw[13:]


def with_checksum(raw: bytes) -> bytes:
    sized = raw[:9] + (len(raw) + 4).to_bytes(4, "little") + raw[13:]
    return sized + zlib.crc32(sized).to_bytes(4, "little")


def format_description(raw: bytes, algorithm: int) -> bytes:
    """The same format description, announcing another checksum algorithm."""
    return with_checksum(raw[:-5] + bytes([algorithm]))


def samples_of(data: bytes) -> Iterator[Sample]:
    if data[:4] != BINLOG_MAGIC:
        return
    context: list[bytes] = []
    checksum = 0
    for raw in split(data):
        if raw[4] == EventType.FORMAT_DESCRIPTION:
            algorithm = algorithm_of(raw)
            if algorithm is None:
                return
            checksum = 4 if algorithm else 0
            context = [format_description(raw, 0)]
            continue
        if not context:
            return
        plain = resized(raw[: len(raw) - checksum])
        if len(plain) <= MAX_SIZE:
            yield Sample(tuple(context), plain)
        if raw[4] == EventType.TABLE_MAP:
            context.append(plain)
        elif raw[4] not in ROWS:
            del context[1:]


def pick() -> list[Sample]:
    """Events of the corpus, or of the demo's log without it."""
    paths = sorted(path for path in FILES.rglob("*") if path.is_file())
    return choose((path.read_bytes() for path in paths), EVENT_COUNT) if paths else pick_from_demo()


def pick_from_demo() -> list[Sample]:
    return choose([read_log()], DEMO_EVENT_COUNT)


def choose(logs: Iterable[bytes], count: int) -> list[Sample]:
    """Every type in turn, so that rare ones are there and frequent ones fill the rest."""
    by_type: dict[int, list[Sample]] = defaultdict(list)
    seen: set[bytes] = set()
    for data in logs:
        for sample in samples_of(data):
            body = sample.raw[EVENT_HEADER_SIZE:]
            if body not in seen and decodes(sample):
                seen.add(body)
                by_type[sample.type].append(sample)
    shuffled = random.Random(1)
    for samples in by_type.values():
        shuffled.shuffle(samples)
    picked: list[Sample] = []
    while len(picked) < count and any(by_type.values()):
        picked += [samples.pop() for samples in by_type.values() if samples]
    return picked[:count]


def small_log(*, checksum: bool) -> bytes:
    """A log of the demo's events: one of each type, in whole transactions, with right positions and checksums."""
    events = list(split(read_log()))
    chosen, types = [], set[int]()
    for transaction in sorted(_transactions(events), key=lambda one: sum(map(len, one))):
        kinds = {raw[4] for raw in transaction}
        if kinds - types:
            chosen.append(transaction)
            types |= kinds
    log = bytearray(BINLOG_MAGIC)
    for raw in (*events[:2], *(raw for transaction in chosen for raw in transaction), events[-1]):
        log += _placed(raw[:-4], len(log), checksum)
    return bytes(log)


def _transactions(events: list[bytes]) -> list[list[bytes]]:
    """Without the first two events and the last one, which belong to the file."""
    found: list[list[bytes]] = []
    for raw in events[2:-1]:
        if raw[4] == EventType.GTID:
            found.append([])
        found[-1].append(raw)
    return found


def _placed(raw: bytes, position: int, checksum: bool) -> bytes:
    """An event without checksum at another place of a log."""
    is_description = raw[4] == EventType.FORMAT_DESCRIPTION
    if is_description:
        raw = raw[:-1] + bytes([checksum])
    size = len(raw) + 4 * (checksum or is_description)
    raw = raw[:13] + (position + size).to_bytes(4, "little") + raw[17:]
    return with_checksum(raw) if checksum or is_description else resized(raw)


def decode(decoder: EventDecoder, raw: bytes) -> list[Event]:
    event = decoder.decode(raw)
    if isinstance(event, TransactionPayloadEvent):
        return list(decoder.payload_events(event))
    return [] if event is None else [event]


def decodes(sample: Sample) -> bool:
    decoder = EventDecoder()
    try:
        for raw in (*sample.context, sample.raw):
            decode(decoder, raw)
    except DecodeError:
        return False
    return True


class Trial:
    """Decodes damaged variants of one event, each behind the same context.

    ``events`` are what the event is before any damage; ``run`` returns what is left of it, or None if it is refused.
    """

    def __init__(self, sample: Sample, checksums: bool) -> None:
        self.sample = sample
        self.checksums = checksums
        # Compiled at once, so that each trial takes the same way.
        self.decoder = EventDecoder(row_compiler=RowCompiler(None))
        self.outcomes: Counter[str] = Counter()
        head = sample.context[0]
        self.context = sample.context
        if checksums:
            self.context = (format_description(head[:-4], 1), *map(with_checksum, sample.context[1:]))
        self.events = self.run(with_checksum(sample.raw) if checksums else sample.raw) or []
        self.outcomes.clear()

    def run(self, raw: bytes) -> list[Event] | None:
        for before in self.context:
            self.decoder.decode(before)
        try:
            events = decode(self.decoder, raw)
        except DecodeError as error:
            damage = error
        else:
            self.outcomes["decoded"] += 1
            return events
        assert damage.reason
        assert damage.position is not None
        self.outcomes[type(damage).__name__] += 1
        return None

    def is_unchanged(self, events: list[Event]) -> bool:
        """Whether the events say what they said before the damage; their headers do not count."""
        return list(map(content, events)) == list(map(content, self.events))


def content(event: Event) -> tuple[str, list[object]]:
    names = [name for kind in type(event).__mro__ for name in getattr(kind, "__slots__", ())]
    return type(event).__name__, [getattr(event, name) for name in names if "header" not in name]


def changed(raw: bytes, generator: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        data[generator.randrange(EVENT_HEADER_SIZE, len(data))] = generator.randrange(256)
    return bytes(data)
