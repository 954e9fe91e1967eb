"""Merges of several tables at once: their waiting changes and their leaves -> new files. No Spark, and no commit.

    Merge           a table, its groups of leaves, and the parts of its waiting changes
    chunks          a merge -> shares of its parts, which tasks route side by side
    route_chunk     a share -> pieces: the changes of one group each
    merge_pieces    all pieces of a group -> its new files
    merge_here      all of it in this process

``merge_tasks`` does the same on Spark, with a shuffle between ``route_chunk`` and ``merge_pieces``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from protocol.records import record

from .leaf_files import NewFile, folder
from .leaf_merge import LeafTable, merge, route
from .leaves import Group, LeafFile
from .staging import Part, part_from_json, part_to_json, read_part, schema_from_text, schema_to_text

#: The bytes of waiting rows that one task routes.
CHUNK_BYTES: Final = 16 << 20


@record(frozen=True, slots=True)
class Merge:
    """The merge of one table. ``joins``: groups of files with past states, which have no changes."""

    table: LeafTable
    groups: tuple[Group, ...]
    parts: tuple[Part, ...]
    joins: tuple[Group, ...] = ()

    @property
    def size(self) -> int:
        """About the bytes that a merge reads."""
        return sum(part.length for part in self.parts) + sum(group.size for group in self.groups)

    @property
    def touched(self) -> list[int]:
        """The numbers of the groups in which changes may lie."""
        spans = {(part.low, part.high) for part in self.parts}
        return [number for number, group in enumerate(self.groups) if group.is_share or group.overlaps(spans)]

    @property
    def touched_size(self) -> int:
        """About the bytes that a merge reads of these groups, and of the changes."""
        groups = [*(self.groups[number] for number in self.touched), *self.joins]
        return sum(part.length for part in self.parts) + sum(group.size for group in groups)


@record(frozen=True, slots=True)
class Merged:
    """Files of a table to be removed, and the new files in their place."""

    removed: list[LeafFile]
    added: list[NewFile]


@record(frozen=True, slots=True)
class Piece:
    """Changes of one group; pieces of a group are in order by ``number``."""

    group: int
    number: int
    rows: pa.Table


def chunks(merge: Merge) -> Iterator[tuple[int, tuple[Part, ...]]]:
    """Shares of the parts, in their order, each with the number of its first part."""
    held: list[Part] = []
    size = first = 0
    for number, part in enumerate(merge.parts):
        held.append(part)
        size += max(part.length, part.size)
        if size >= CHUNK_BYTES:
            yield first, tuple(held)
            held, size, first = [], 0, number + 1
    if held:
        yield first, tuple(held)


def route_chunk(
    table: LeafTable,
    groups: Sequence[Group],
    chunk: tuple[int, Sequence[Part]],
    target: str,
    storage: Mapping[str, str],
) -> Iterator[Piece]:
    """The changes of each group in a share of the parts."""
    number, parts = chunk
    system = folder(target, storage)
    rows = pa.concat_tables([read_part(system, part) for part in parts])
    for group, piece in route(table, rows, groups):
        yield Piece(group, number, piece)


def merge_pieces(
    table: LeafTable, group: Group, pieces: Iterable[pa.Table], storage: Mapping[str, str]
) -> list[NewFile]:
    """The new files of a group; ``pieces`` are its changes in order."""
    found = list(pieces)
    return merge(table, group, pa.concat_tables(found) if found else None, storage)


def merge_here(merges: Sequence[Merge], target: str, storage: Mapping[str, str]) -> list[Merged]:
    """The merges in this process."""
    return [_merge_here(merge, target, storage) for merge in merges]


def _merge_here(merge: Merge, target: str, storage: Mapping[str, str]) -> Merged:
    pieces: dict[int, list[pa.Table]] = {}
    for chunk in chunks(merge):
        for piece in route_chunk(merge.table, merge.groups, chunk, target, storage):
            pieces.setdefault(piece.group, []).append(piece.rows)
    found = Merged([], [])
    for number, group in enumerate(merge.groups):
        if group.is_share:
            # The files of a share are removed, so its rows are written even if none has changed.
            pieces.setdefault(number, [])
    for number, rows in pieces.items():
        found.removed.extend(merge.groups[number].files)
        found.added.extend(merge_pieces(merge.table, merge.groups[number], rows, storage))
    for group in merge.joins:
        found.removed.extend(group.files)
        found.added.extend(merge_pieces(merge.table, group, (), storage))
    return found


# As JSON, for tasks.


def table_to_json(table: LeafTable) -> dict[str, Any]:
    """A table as JSON."""
    return {
        "name": table.name,
        "path": table.path,
        "key": table.key,
        "schema": schema_to_text(table.schema),
        "is_history": table.is_history,
        "defaults": dict(table.defaults),
        "indexed": table.indexed,
        "stamps": table.stamps,
        "is_settling": table.is_settling,
    }


def table_from_json(data: Mapping[str, Any]) -> LeafTable:
    """The reverse of ``table_to_json``."""
    names = {name: tuple(data[name]) for name in ("key", "stamps")}
    return LeafTable(**{**data, **names, "schema": schema_from_text(data["schema"])})


def group_to_json(group: Group) -> list[Any]:
    """A group as JSON."""
    return [group.ranges, [list(asdict(file).values()) for file in group.files], group.is_share]


def group_from_json(data: Sequence[Any]) -> Group:
    """The reverse of ``group_to_json``."""
    ranges, files, is_share = data
    return Group(
        tuple((low, high) for low, high in ranges), tuple(_file_from_json(file) for file in files), is_share
    )


def _file_from_json(data: Sequence[Any]) -> LeafFile:
    *values, bounds = data
    path, size, rows, low, high = values
    return LeafFile(path, size, rows, low, high, None if bounds is None else (bounds[0], bounds[1]))


def chunk_to_json(chunk: tuple[int, Sequence[Part]]) -> list[Any]:
    """A share of the parts as JSON."""
    number, parts = chunk
    return [number, [part_to_json(part) for part in parts]]


def chunk_from_json(data: Sequence[Any]) -> tuple[int, tuple[Part, ...]]:
    """The reverse of ``chunk_to_json``."""
    number, parts = data
    return number, tuple(part_from_json(part) for part in parts)
