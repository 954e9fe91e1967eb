"""GTIDs and GTID sets, compared with a plain set of GTIDs and with the bytes and texts of real servers."""

from __future__ import annotations

import gzip
import itertools
import random
import re
import struct
import time
import tracemalloc
import uuid
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import protocol.gtid
from protocol import intervals
from protocol.errors import ConfigurationError, DecodeError, TruncatedError
from protocol.gtid import Gtid, GtidSet, Interval, MariadbGtid, MariadbGtidSet, parse_gtid_set
from tests.support.places import CORPUS, corpus_index

A = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
B = uuid.UUID("55778904-0299-11f1-b1b8-4ef0c4956feb")
LAST = (1 << 63) - 2

TAGS = st.sampled_from(["", "", "a", "a_1", "zz", "_" * 32])
GTIDS = st.builds(Gtid, st.sampled_from([A, B]), st.integers(1, 12), TAGS)


def model(transactions: GtidSet) -> set[Gtid]:
    return {
        Gtid(source_id, sequence, tag)
        for source_id, tag, first, last in transactions.intervals()
        for sequence in range(first, last + 1)
    }


@given(st.sets(GTIDS), st.sets(GTIDS))
def test_sets_are_sets(left: set[Gtid], right: set[Gtid]) -> None:
    one, two = GtidSet(left), GtidSet(right)
    assert model(one) == left
    assert model(one | two) == left | right
    assert model(one - two) == left - right
    assert model(one & two) == left & right
    assert (one <= two) == (left <= right)
    assert (one == two) == (left == right)
    assert bool(one) == bool(left)
    assert {gtid for gtid in left | right if gtid in one} == left
    assert (model(one), model(two)) == (left, right)


@given(st.lists(GTIDS))
def test_the_order_of_adding_does_not_matter(gtids: list[Gtid]) -> None:
    assert GtidSet(gtids) == GtidSet(reversed(gtids)) == GtidSet(sorted(gtids, key=str))


@given(st.sets(GTIDS))
def test_intervals_neither_touch_nor_overlap(gtids: set[Gtid]) -> None:
    intervals = list(GtidSet(gtids).intervals())
    for before, after in itertools.pairwise(intervals):
        assert before[:2] < after[:2] or (before[:2] == after[:2] and before.last + 1 < after.first)


@given(st.sets(GTIDS))
def test_text_and_bytes_give_the_set_back(gtids: set[Gtid]) -> None:
    transactions = GtidSet(gtids)
    assert GtidSet.parse(str(transactions)) == transactions
    assert GtidSet.decode(transactions.encode()) == transactions
    assert {Gtid.parse(str(gtid)) for gtid in gtids} == gtids


@given(st.sets(GTIDS), st.integers(1, 12), st.integers(0, 12))
def test_an_interval_is_its_members(gtids: set[Gtid], first: int, more: int) -> None:
    transactions = GtidSet(gtids)
    transactions.add_interval(A, first, first + more)
    assert model(transactions) == gtids | {Gtid(A, first + step) for step in range(more + 1)}


def test_a_copy_is_its_own() -> None:
    transactions = GtidSet(f"{A}:1-5")
    copy = transactions.copy()
    copy.add(Gtid(A, 6))
    assert (str(transactions), str(copy)) == (f"{A}:1-5", f"{A}:1-6")


def test_a_set_cannot_be_hashed_and_a_gtid_can() -> None:
    assert {Gtid(A, 1), Gtid(A, 1)} == {Gtid(A, 1)}
    with pytest.raises(TypeError):
        hash(GtidSet())


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" , ", ""),
        (f"{A}", ""),
        (f"{A}:7:1-3", f"{A}:1-3:7"),
        (f"{A}:1-3:4:9", f"{A}:1-4:9"),
        (f" {str(A).upper()} : 1 - 3 ,\n{B}:5", f"{A}:1-3,{B}:5"),
        (f"{B}:5,{A}:1,{B}:6", f"{A}:1,{B}:5-6"),
        (f"{A}:Tag:1-2:3:other:8,{A}:4", f"{A}:4:other:8:tag:1-3"),
        (f"{A}:tag:1", f"{A}:tag:1"),
        (f"{A}:1-{LAST}", f"{A}:1-{LAST}"),
    ],
)
def test_text_as_the_server_prints_it(text: str, canonical: str) -> None:
    assert str(GtidSet(text)) == canonical
    assert repr(GtidSet(text)) == f"GtidSet({canonical!r})"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1-5",
        f"{A}:",
        f"{A}:0",
        f"{A}:0-3",
        f"{A}:5-3",
        f"{A}:-3",
        f"{A}:1-",
        f"{A}:1-2-3",
        f"{A}:{LAST + 1}",
        f"{A}:{'9' * 5000}",
        f"{A}:9tag:1",
        f"{A}:{'t' * 33}:1",
        f"{A}:täg:1",
        f"{A}:١",
        f"{{{A}}}:1",
        f"{A.hex}:1",
        f"{A}:1;{B}:1",
        f"{A}:1 {B}:1",
        "0-1-100",
    ],
)
def test_what_is_no_set(text: str) -> None:
    with pytest.raises(ConfigurationError):
        GtidSet.parse(text)


@pytest.mark.parametrize("text", ["", f"{A}", f"{A}:1-2", f"{A}:1,{B}:1", f"{A}:0", "0-1-2"])
def test_what_is_no_single_transaction(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Gtid.parse(text)


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 2), (1, LAST + 1), (-1, 1)])
def test_what_is_no_interval(first: int, last: int) -> None:
    with pytest.raises(ConfigurationError):
        GtidSet().add_interval(A, first, last)


def test_bytes_without_and_with_tags() -> None:
    interval = (1).to_bytes(8, "little") + (4).to_bytes(8, "little")
    one = (1).to_bytes(8, "little")
    assert GtidSet(f"{A}:1-3").encode() == one + A.bytes + one + interval
    assert GtidSet(f"{A}:1-3,{A}:tag:1-3").encode() == (
        bytes.fromhex("0102000000000001")
        + (A.bytes + b"\x00" + one + interval)
        + (A.bytes + b"\x06tag" + one + interval)
    )
    assert GtidSet().encode() == bytes(8)


def test_a_number_in_front_of_its_interval_is_refused() -> None:
    data = bytearray(GtidSet(f"{A}:1-3:5-6").encode())
    data[-16] = 3
    with pytest.raises(DecodeError, match="out of order"):
        GtidSet.decode(bytes(data))


@pytest.mark.parametrize("length", [0x05, 0x42, 0xFF])
def test_a_tag_of_impossible_length_is_refused(length: int) -> None:
    data = bytearray(GtidSet(f"{A}:tag:1").encode())
    data[24] = length
    with pytest.raises(DecodeError, match="length byte"):
        GtidSet.decode(bytes(data))


@given(st.sets(GTIDS), st.data())
def test_damaged_bytes_raise_nothing_else(gtids: set[Gtid], data: st.DataObject) -> None:
    encoded = GtidSet(gtids).encode()
    with pytest.raises(TruncatedError):
        GtidSet.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(DecodeError):
        GtidSet.decode(encoded + b"\x00")
    changed = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = GtidSet.decode(bytes(changed))
    except DecodeError:
        return
    assert GtidSet.decode(decoded.encode()) == decoded


def _previous_gtids_events(data: bytes, checksums: bool) -> Iterator[bytes]:
    position = 4
    while position + 19 <= len(data):
        size = int.from_bytes(data[position + 9 : position + 13], "little")
        if data[position + 4] == 35:
            yield data[position + 19 : position + size - (4 if checksums else 0)]
        position += max(size, 19)


@pytest.mark.thorough
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real logs is not here")
def test_previous_gtids_of_real_logs() -> None:
    records = [
        record
        for record in corpus_index()
        if record["event_counts"].get("35 PREVIOUS_GTIDS") and record["best_oracle"] == "mysqlbinlog97"
    ]
    assert len(records) > 100
    for record in records:
        check_previous_gtids(record)


def check_previous_gtids(record: dict[str, Any]) -> None:
    """The sets of a log's PREVIOUS_GTIDS events are those that mysqlbinlog prints."""
    data = (CORPUS / record["file"]).read_bytes()
    with gzip.open(CORPUS / record["oracle"]["mysqlbinlog97"]["file"], "rt", errors="replace") as oracle:
        printed = re.findall(r"\tPrevious-GTIDs\n((?:# [0-9a-f-]{36}:.*\n|# \[empty\]\n)+)", oracle.read())
    expected = [re.sub(r"# |\n", "", text).replace("[empty]", "") for text in printed]
    bodies = list(_previous_gtids_events(data, record["checksum_alg"] == "CRC32"))
    decoded = [GtidSet.decode(body) for body in bodies]
    assert expected, record["file"]
    assert [str(transactions) for transactions in decoded] == expected, record["file"]
    assert [transactions.encode() for transactions in decoded] == bodies, record["file"]
    assert [GtidSet(text) for text in expected] == decoded, record["file"]


def test_mariadb_text() -> None:
    transactions = MariadbGtidSet.parse(" 1-2-5 , 0-1-100 ")
    assert str(transactions) == "0-1-100,1-2-5"
    assert repr(transactions) == "MariadbGtidSet('0-1-100,1-2-5')"
    assert list(transactions) == [MariadbGtid(0, 1, 100), MariadbGtid(1, 2, 5)]
    assert not MariadbGtidSet(" ")
    assert MariadbGtid.parse("0-1-100") == MariadbGtid(0, 1, 100)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "0-1",
        "0-1-2-3",
        "0-1-2,",
        "0-1-2,0-2-3",
        f"{1 << 32}-1-1",
        f"0-{1 << 32}-1",
        f"0-1-{1 << 64}",
        f"{A}:1",
    ],
)
def test_what_is_no_mariadb_set(text: str) -> None:
    with pytest.raises(ConfigurationError):
        MariadbGtidSet.parse(text)


MARIADB_GTIDS = st.builds(MariadbGtid, st.integers(0, 3), st.integers(1, 2), st.integers(0, 9))


@given(st.lists(MARIADB_GTIDS), st.lists(MARIADB_GTIDS), MARIADB_GTIDS)
def test_the_last_of_each_domain_stands_for_all_before(
    left: list[MariadbGtid], right: list[MariadbGtid], gtid: MariadbGtid
) -> None:
    one, two = ({gtid.domain_id: gtid for gtid in gtids} for gtids in (left, right))
    mine, others = MariadbGtidSet(left), MariadbGtidSet(right)
    assert list(mine) == [one[domain] for domain in sorted(one)]
    assert (gtid in mine) == (gtid.domain_id in one and gtid.sequence <= one[gtid.domain_id].sequence)
    assert (mine <= others) == all(
        domain in two and last.sequence <= two[domain].sequence for domain, last in one.items()
    )
    assert (mine == others) == (one == two)
    assert MariadbGtidSet(str(mine)) == mine == mine.copy()


def test_a_mariadb_copy_is_its_own() -> None:
    transactions = MariadbGtidSet("0-1-100")
    copy = transactions.copy()
    copy.add(MariadbGtid(0, 2, 101))
    assert (str(transactions), str(copy)) == ("0-1-100", "0-2-101")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", GtidSet),
        (f"{A}:1", GtidSet),
        ("12345678-1234-1234-1234-123456789012:5", GtidSet),
        ("0-1-100", MariadbGtidSet),
        (" 0-1-100,\n1-1-1", MariadbGtidSet),
    ],
)
def test_the_form_tells_the_family(text: str, kind: type) -> None:
    transactions = parse_gtid_set(text)
    assert type(transactions) is kind
    assert transactions == kind(text)


@pytest.mark.parametrize("text", ["x", f"0-1-100,{A}:1", f"{A}:1,0-1-100", "0-1"])
def test_what_is_a_set_of_neither(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_gtid_set(text)


def test_intervals_are_named() -> None:
    assert list(GtidSet(f"{A}:tag:3-9").intervals()) == [Interval(A, "tag", 3, 9)]


def test_the_text_of_a_large_set_is_read_in_little_memory() -> None:
    """A source may send one of 64 MB. It took twice the memory of the set while it was read."""
    text = f"{A}:" + ":".join(str(number) for number in range(1, 100_000, 2))
    tracemalloc.start()
    try:
        found = GtidSet(text)
        size, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(found) == text
    assert most - size < 5 * len(text)


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.thorough, id="rising"), pytest.param(-1, id="falling")]
)
def test_large_sets_take_linear_time(step: int) -> None:
    """400,000 falling intervals took 20 s, and the union of two such sets 20 s."""
    numbers = range(1, 400_000, 2)[::step]
    text = f"{A}:" + ":".join(map(str, numbers))
    other = f"{A}:" + ":".join(str(4 * number) for number in range(1, 100_000))
    before = time.process_time()
    found = GtidSet(text)
    assert sum(1 for _ in found.intervals()) == 200_000
    union = found | GtidSet(other)
    assert str(union - GtidSet(other)) == str(found)
    assert time.process_time() - before < 4


def test_sources_that_come_again_in_an_encoded_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Falling intervals were put in front of all others: 8 MB took 4 s, and four times as long for 16 MB."""
    count, moved = 1000, 0

    def counting(ends: list[int], start: int, end: int) -> None:
        nonlocal moved
        moved += len(ends) - bisect_left(ends, start)
        cover(ends, start, end)

    cover = intervals.cover
    monkeypatch.setattr(protocol.gtid, "cover", counting)
    starts = range(2 * count, 0, -2)
    data = struct.pack("<Q", count) + b"".join(A.bytes + struct.pack("<3Q", 1, n, n + 1) for n in starts)
    assert GtidSet.decode(data) == GtidSet(f"{A}:" + ":".join(map(str, starts)))
    assert moved <= 4 * count


def plain_text(gtids: GtidSet) -> str:
    """The text of a set, made anew."""
    sources: dict[uuid.UUID, dict[str, str]] = {}
    for source_id, tag, first, last in gtids.intervals():
        tags = sources.setdefault(source_id, {})
        tags[tag] = tags.get(tag, "") + (f":{first}" if first == last else f":{first}-{last}")
    texts = [
        "".join(f"{':' * bool(tag)}{tag}{text}" for tag, text in tags.items()) for tags in sources.values()
    ]
    return ",".join(f"{source_id}{text}" for source_id, text in zip(sources, texts, strict=True))


def test_text_that_is_kept_is_the_text(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        monkeypatch.setattr(protocol.gtid, "_TAIL", rng.choice([2, 4, 32]))
        sets = [GtidSet()]
        sources = [uuid.UUID(int=rng.randrange(1 << 128)) for _ in range(3)]
        for _ in range(80):
            one, other = rng.choice(sets), rng.choice(sets)
            source, tag, first = rng.choice(sources), rng.choice(["", "", "a", "b"]), rng.randrange(1, 200)
            match rng.randrange(8):
                case 0:
                    sets.append(one.copy())
                case 1:
                    sets.append(rng.choice([one | other, one - other]))
                case 2:
                    one.add_interval(source, first, first + rng.randrange(5), tag)
                case 3:
                    # The next of a source.
                    last = max(
                        (each.last for each in one.intervals() if each[:2] == (source, tag)), default=0
                    )
                    one.add(Gtid(source, last + 1, tag))
                case 4:
                    assert str(one) == plain_text(one)
                case _:
                    one.add(Gtid(source, first, tag))
        for one in sets:
            assert str(one) == plain_text(one)
            assert GtidSet(str(one)) == one


@pytest.mark.parametrize(("sources", "holes"), [(300, 1), (1, 2_000)])
def test_a_checkpoint_after_each_transaction(
    sources: int, holes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each made the whole text anew: 5 ms for 2,000 sources, 6 ms for 10,000 intervals. What it makes is counted."""
    executed = GtidSet()
    ids = [uuid.UUID(int=number << 64) for number in range(1, sources + 1)]
    for source in ids:
        for number in range(holes):
            executed.add_interval(source, 1 + 3 * number, 2 + 3 * number)
    names, bounds = 0, 0
    tsid_text, intervals_text = protocol.gtid._tsid_text, intervals.intervals_text

    def counted_name(*args: Any) -> str:
        nonlocal names
        names += 1
        return tsid_text(*args)

    def counted_text(ends: list[int]) -> str:
        nonlocal bounds
        bounds += len(ends)
        return intervals_text(ends)

    monkeypatch.setattr(protocol.gtid, "_tsid_text", counted_name)
    monkeypatch.setattr(protocol.gtid, "intervals_text", counted_text)
    rounds = 200
    for number in range(rounds):
        # Every fourth transaction comes before the one in front of it.
        sequence = 3 * holes + 100 + number + (number % 4 == 1) - (number % 4 == 2)
        executed.add(Gtid(ids[number % sources], sequence))
        text = str(executed.copy())
        assert str(executed) == text
    assert text == plain_text(executed)
    assert names <= 2 * sources
    assert bounds < 2 * rounds * sources * 100


class Counted(list[int]):
    """Bounds that count how many of them are looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(index)


def test_a_set_of_many_intervals_is_not_walked_through_for_a_subset() -> None:
    """``serve`` asks this for each of its files: with a million intervals that took 2 s a file of the event loop."""
    many = GtidSet(",".join(f"{A}:{3 * number + 1}" for number in range(2_000)))
    [(key, ends)] = many._ends.items()
    many._ends[key] = Counted(ends)
    for text, is_within in (("1-6000", False), ("1", True), ("5998", True), ("4:10:14", False)):
        assert (GtidSet(f"{A}:{text}") <= many) is is_within
    assert 0 < Counted.looks < 100
