"""Leaves: which files of a kept table hold which keys. Pure Arrow, no Spark and no Delta.

    places     keys -> numbers: the first key column itself if it is a whole number or a time, else a hash of the key
    file_name  the name of a leaf's file says which places the file holds
    leaf_file  a file of the table -> the places that it may hold, from its name, or from Delta's statistics
    groups     files -> groups that are rewritten as one: files that overlap, and small neighbours
    cut        a group -> the ranges of its new files; ``edges`` are where its changes begin and end

A table's files are leaves: disjoint ranges of places. Results are right whatever the names are: a file with another
name (from a user's OPTIMIZE, a seed, an earlier version) may hold any place, so it forms one group with all files
that it may overlap. The next change in such a group turns it into leaves.
"""

import json
import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.records import record, replace

from .changes_per_key import Numbers

LOWEST: Final = -(1 << 63)
HIGHEST: Final = (1 << 63) - 1
#: A file above MOST_BYTES is split into files of about LEAF_BYTES; neighbours up to JOINED_BYTES in all become one.
LEAF_BYTES: Final = 96 << 20
MOST_BYTES: Final = 128 << 20
JOINED_BYTES: Final = 64 << 20
#: Rows below or above all changes of a leaf become a new leaf if they have at least so many bytes.
UNCHANGED_BYTES: Final = 32 << 20
#: Several tasks rewrite a group whose files and changes have several times so many bytes.
SHARE_BYTES: Final = 256 << 20
# The bytes of a change or a file are assumed to lie at so many evenly spaced places.
_POINTS: Final = 16

#: The kinds of files: rows as they are now, and the past states of a history, which are not written again.
ROWS: Final = "rows"
PAST: Final = "past"
_NAME: Final = re.compile(r"rows-([0-9a-f]{8})-([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f-]+\.parquet")
_ZERO: Final = 1 << 63


Range = tuple[int, int]


@record(frozen=True, slots=True)
class LeafFile:
    """A file of a table. The places of its rows lie from ``low`` to ``high``, both included.

    ``bounds`` are the least and the largest place from Delta's statistics, if these are exact.
    """

    path: str
    size: int
    rows: int
    low: int
    high: int
    bounds: Range | None = None


@record(frozen=True, slots=True)
class Group:
    """Files that are rewritten together, and the ranges of their places, each with both ends included.

    ``is_share``: the files also have rows of other ranges, which belong to other shares of the same files.
    """

    ranges: tuple[Range, ...]
    files: tuple[LeafFile, ...]
    is_share: bool = False

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.size for file in self.files)

    def overlaps(self, spans: Iterable[Range]) -> bool:
        """Whether any of these ranges of places, each with both ends included, has places of the group."""
        return any(first <= high and last >= low for first, last in spans for low, high in self.ranges)


# Places.


def places(keys: pa.Table) -> Numbers:
    """The place of each key. ``keys`` has the columns of the key, in their order, without nulls."""
    first = keys.column(0)
    family = _family(first.type)
    if family == "hash":
        return _hashes(keys)
    if pa.types.is_decimal(first.type):
        first = _whole(first)
    elif pa.types.is_date(first.type):
        first = first.cast(pa.int32())
    found: Numbers = first.cast(pa.int64()).to_numpy()
    return found


def tag(fields: Sequence[pa.Field]) -> str:
    """A tag for file names that says how places follow from a key of these columns: other tags are not comparable."""
    family = _family(fields[0].type)
    said = [family, fields[0].name]
    if family == "hash":
        said += [f"{field.name} {field.type}" for field in fields]
    return f"{zlib.crc32(json.dumps(said).encode()):08x}"


def _family(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
        return "number"
    if pa.types.is_date32(kind):
        return "date"
    return "time" if pa.types.is_timestamp(kind) else "hash"


def _whole(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The whole part of decimals, in order; numbers beyond 64 bits become the largest or least 64-bit number."""
    kind = values.type
    digits = kind.precision - kind.scale
    whole = pc.floor(values) if kind.scale else values
    if digits <= 18:
        return whole.cast(pa.decimal128(38, 0), safe=False)
    whole = whole.cast(pa.decimal128(38, 0), safe=False)
    low, high = (pa.scalar(bound, pa.int64()).cast(pa.decimal128(38, 0)) for bound in (LOWEST, HIGHEST))
    whole = pc.if_else(pc.less(whole, low), low, whole)
    return pc.if_else(pc.greater(whole, high), high, whole)


def _hashes(keys: pa.Table) -> Numbers:
    found: Iterable[int] = repeat(0)
    for column in keys.columns:
        found = map(zlib.crc32, _bytes(column), found)
    hashes = np.fromiter(found, np.int64, keys.num_rows)
    # The first bits of CRC-32 are those that differ most; a place has 64 bits.
    return (hashes << 32) + LOWEST


def _bytes(column: pa.ChunkedArray) -> list[bytes]:
    if pa.types.is_floating(column.type):
        # A negative zero equals zero.
        column = pc.add(column, 0.0)
    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        column = column.cast(pa.string()).cast(pa.binary())
    values: list[bytes] = column.to_pylist()
    return values


# Files.


def file_name(kind: str, tag: str, range_: Range) -> str:
    """A new name for a file of rows (or of past states) whose places lie in this range."""
    if kind == PAST:
        return f"{PAST}-{uuid.uuid4()}.parquet"
    low, high = range_
    return f"{ROWS}-{tag}-{low + _ZERO:016x}-{high + _ZERO:016x}-{uuid.uuid4()}.parquet"


def is_past(path: str) -> bool:
    """Whether a file has only past states."""
    return path.startswith(f"{PAST}-")


def leaf_file(path: str, size: int, rows: int, tag: str, bounds: Range | None = None) -> LeafFile:
    """A file of the table; see ``LeafFile``."""
    said = _NAME.fullmatch(path)
    if said is not None and said[1] == tag:
        low, high = (int(text, 16) - _ZERO for text in (said[2], said[3]))
    else:
        low, high = bounds or (LOWEST, HIGHEST)
    return LeafFile(path, size, rows, low, high, bounds)


def groups(files: Iterable[LeafFile]) -> list[Group]:
    """The groups of a table, in the order of their places; each place is in the range of exactly one group.

    A place between the files of two groups belongs to the lower one.
    """
    found: list[list[LeafFile]] = []
    high = size = 0
    for file in sorted(files, key=lambda file: (file.low, file.high)):
        if found and (file.low <= high or size + file.size <= JOINED_BYTES):
            found[-1].append(file)
            high, size = max(high, file.high), size + file.size
        else:
            found.append([file])
            high, size = file.high, file.size
    lows = [LOWEST, *(part[0].low for part in found[1:])]
    highs = [*(low - 1 for low in lows[1:]), HIGHEST]
    return [
        Group(((low, high),), tuple(part)) for low, high, part in zip(lows, highs, found or [[]], strict=True)
    ]


def shares(found: Sequence[Group], changes: Sequence[tuple[int, int, int]]) -> list[Group]:
    """The groups; those too large for one task are divided into shares.

    ``changes`` has the bytes of changes, with their least and largest place. The places in between are not known: if
    they are not spread evenly, shares differ in size.
    """
    return [share for group in found for share in _shares(group, changes)]


def _shares(group: Group, changes: Sequence[tuple[int, int, int]]) -> list[Group]:
    [(low, high)] = group.ranges
    # The first and the last range are open: without bounds of files, only the places of changes are known there.
    least = max(low, min((first for _, first, _ in changes), default=low))
    most = min(high, max((last for _, _, last in changes), default=high))
    weights = [*changes, *((file.size, *(file.bounds or (least, most))) for file in group.files)]
    points = [
        (first + (last - first) * number // _POINTS, size / _POINTS)
        for size, first, last in weights
        for number in range(_POINTS)
    ]
    points = sorted(point for point in points if low <= point[0] <= high)
    total = sum(size for _, size in points)
    count = int(total // SHARE_BYTES)
    if count < 2:
        return [group]
    lows, passed = {low}, 0.0
    for place, size in points:
        if passed >= len(lows) * total / count:
            lows.add(place)
        passed += size
    firsts = sorted(lows)
    files = tuple(replace(file, size=file.size // count, rows=file.rows // count) for file in group.files)
    lasts = [*(first - 1 for first in firsts[1:]), high]
    return [Group((range_,), files, is_share=len(firsts) > 1) for range_ in zip(firsts, lasts, strict=True)]


def owners(found: Sequence[Group], where: Numbers) -> Numbers:
    """The number of the group to which each of these places belongs."""
    lows, numbers = zip(
        *sorted((low, number) for number, group in enumerate(found) for low, _ in group.ranges), strict=True
    )
    ranks = np.searchsorted(np.array(lows, np.int64), where, side="right") - 1
    owning: Numbers = np.array(numbers, np.int64)[ranks]
    return owning


def united(found: Sequence[Group], moves: Sequence[Range] | None) -> list[Group]:
    """The groups; two are united if an update that lacks columns moves a row from one to the other.

    ``moves`` has the places before and after each move; None: rows may move between any two groups.
    """
    if moves is not None and not moves:
        return list(found)
    parent = [0] * len(found) if moves is None else list(range(len(found)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for pair in owners(found, np.array(moves or [], np.int64).reshape(-1)).reshape(-1, 2).tolist():
        one, other = map(root, pair)
        parent[max(one, other)] = min(one, other)
    together: dict[int, Group] = {}
    for number, group in enumerate(found):
        known = together.get(root(number), Group((), ()))
        together[root(number)] = Group((*known.ranges, *group.ranges), (*known.files, *group.files))
    return list(together.values())


def is_part(group: Group, span: Range) -> bool:
    """Whether changes in this range of places would leave much of a group as it was, if keys are spread evenly."""
    if len(group.ranges) != 1 or not group.files:
        return False
    bounds = [file.bounds or (file.low, file.high) for file in group.files]
    [(low, high)] = group.ranges
    low, high = max(low, min(least for least, _ in bounds)), min(high, max(most for _, most in bounds))
    return 4 * (min(span[1], high) - max(span[0], low)) < 3 * (high - low)


def edges(sample: Numbers, size: int, span: Range) -> list[int]:
    """Where to cut a group of about ``size`` bytes: where its changes begin, and where they end.

    The places of the changes lie in ``span``, ``sample`` has places of all rows. The next changes often lie where the
    last ones did, for example at the highest keys; then they rewrite less.
    """
    if size <= JOINED_BYTES:
        # Parts of a small group would be small neighbours, which are rewritten as one.
        return []
    low, high = span
    least = UNCHANGED_BYTES * len(sample) / size
    below, above = np.count_nonzero(sample < low), np.count_nonzero(sample > high)
    return [*([low] if below >= least else ()), *([high + 1] if above >= least else ())]


def cut(group: Group, sample: Numbers, size: int, edges: Sequence[int] = ()) -> list[Range]:
    """The ranges of the new files of a group that will have about ``size`` bytes.

    ``sample`` has places of their rows; it may be empty if the size is not above MOST_BYTES. A range begins at each
    of the ``edges``, which are places of the group.
    """
    lows = [*(low for low, _ in group.ranges), *edges]
    if size > MOST_BYTES and len(sample):
        for low, following in zip([LOWEST, *edges], [*edges, None], strict=True):
            part = sample[sample >= low]
            part = part if following is None else part[part < following]
            count = -(-size * len(part) // len(sample) // LEAF_BYTES)
            if size * len(part) > MOST_BYTES * len(sample):
                ranks = np.arange(1, count) * len(part) // count
                lows += np.partition(part, ranks)[ranks].tolist()
    lows = sorted(set(lows))
    highs = dict(group.ranges)
    found = []
    end = HIGHEST
    for low, following in zip(lows, [*lows[1:], HIGHEST], strict=True):
        end = highs.get(low, end)
        found.append((low, end if following > end else following - 1))
    return [*found[:-1], (lows[-1], end)]
