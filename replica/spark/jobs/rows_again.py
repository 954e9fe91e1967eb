"""Rows of a copied table that are read again: an update that lacks columns gave them another key during the copy.

The rows of a copy are of different moments, and the log is replayed over them from a place before all of these. With
whole images each key ends right. With images that lack columns (binlog_row_image MINIMAL or NOBLOB), an update that
keeps the key ends right, too, as later updates come again. But an update of the key takes the lacking columns from
the row with the old key. The copy may lack that row, or have another row there. So keys to read again are found in
the log:

    1st window    from the copy's beginning to the log's end after it    all keys that rows were moved to
    read again    when the log has passed the window: the rows with these keys, as changes after all others
    next window   from there to the log's end after that read            keys that rows were moved to from those
    ...                                                                  until there are none

Until then the table is settling: an update without a row before is left out. Its row will be deleted, has been moved
on, or is read again. This module keeps little: names of parts, not keys.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from protocol.position import BinlogPosition, file_number
from protocol.records import field, record

from ...spool.offsets import Offset
from .changes_per_key import Key, moved
from .staging import Part, part_from_json, part_to_json, read_part

_NOWHERE: Final = ""


@record(slots=True)
class RowsAgain:
    """The window of one table. ``key`` is its primary key; empty if the table has another primary key now.

    ``parts`` have updates of the window that move rows. ``read`` are parts with the rows that were read again before
    this window; without any, the window begins with the copy. It ends at ``until`` (``FILE:POSITION``) in the log of
    ``epoch``; empty: where the job's copy ends.
    """

    key: tuple[str, ...]
    parts: list[Part] = field(default_factory=list)
    read: list[Part] = field(default_factory=list)
    until: str = _NOWHERE
    epoch: int = 0

    def is_over(self, end: Offset) -> bool:
        """Whether a stream that stands at ``end``, after its job's copy, has passed the window."""
        if self.until == _NOWHERE:
            return True
        place = BinlogPosition.parse(self.until)
        return (end.epoch, file_number(end.file), end.position) >= (
            self.epoch,
            file_number(place.file),
            place.position,
        )

    def keys(self, system: FileSystem, epoch: int) -> list[Key]:
        """The keys whose rows are to be read; ``system`` is the target's file system.

        If the stream follows another log by now, the window's end means nothing, and all keys are read again.
        """
        suspects = {key for part in self.read for key in _keys(read_part(system, part), self.key)}
        found = dict.fromkeys(suspects if epoch != self.epoch else ())
        for part in self.parts:
            for old, new in _moves(read_part(system, part), self.key):
                if not self.read or old in suspects or old in found:
                    found[new] = None
        return list(found)

    def add(self, part: Part, key: tuple[str, ...]) -> None:
        """Note a part with updates that move rows of this key."""
        self.parts.append(part)
        if key != self.key:
            self.key = ()

    def to_json(self) -> list[Any]:
        """The window as plain values."""
        parts = [[part_to_json(part) for part in parts] for parts in (self.parts, self.read)]
        return [self.key, *parts, self.until, self.epoch]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "RowsAgain":
        """The reverse of ``to_json``."""
        key, parts, read, until, epoch = data
        unread, done = ([part_from_json(part) for part in one] for one in (parts, read))
        return cls(tuple(key), unread, done, until, epoch)


def may_lose(part: Part) -> bool:
    """Whether a part has an update that moves a row, and lacks columns."""
    return part.moves is None or bool(part.moves)


def _moves(rows: pa.Table, key: Sequence[str]) -> Iterable[tuple[Key, Key]]:
    """The old and the new keys of updates that lack columns."""
    rows = rows.take(pa.array(moved(rows, key)))
    rows = rows.filter(rows["_absent"].is_valid())
    before = rows["_before"].combine_chunks()
    olds = pa.Table.from_arrays([pc.struct_field(before, name) for name in key], names=list(key))
    return zip(_keys(olds, key), _keys(rows, key), strict=True)


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterable[Key]:
    return zip(*(rows[name].to_pylist() for name in key), strict=True)
