"""The tables of a copy in the order of their names, with a letter for the state of each. Pure: no I/O.

A checkpoint may be written for each transaction. So runs of equal tables, among 10,000, are found in the string of
letters, without looking at each table. A table costs time only when it changes.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import chain
from typing import Final

from protocol.records import record
from protocol.wire import utf8_bytes

from .table_copy import TableProgress
from .transaction_touches import TableId

_WAITING, _WHOLE, _BEGUN = b"wcb"
_WAITS: Final = TableProgress()
_ONES_BEGUN: Final = re.compile(rb"b")
_ONES_WAITING: Final = re.compile(rb"w")
# Three or more whole tables in a row, or one table.
_RUN_OR_ONE: Final = re.compile(rb"c{3,}|.")
_RUN_OR_ONE_NOT_WAITING: Final = re.compile(rb"c{3,}|[^w]")
# If fewer than one in so many tables has changed, only these are looked at.
_FEW: Final = 8
_DIGEST_BYTES: Final = 16


def name_digest(table: TableId) -> int:
    """The digest of a table's name. The digest of several tables is the exclusive or of their digests."""
    schema, name = map(utf8_bytes, table)
    return int.from_bytes(
        blake2b(b"%d:%b.%b" % (len(schema), schema, name), digest_size=_DIGEST_BYTES).digest()
    )


@record(slots=True)
class WholeTables:
    """Tables that are whole, from a first one to a last one in the order of names, and their rows in all."""

    first: TableId
    last: TableId
    rows: int


@record(slots=True)
class CopyOutline:
    """The ``names`` of tables, and for each a letter of ``kinds`` and its ``rows``. It is not changed in place.

    ``waiting`` is the digest of the names of all tables that wait.
    """

    names: list[TableId]
    kinds: bytes
    rows: "array[int]"
    waiting: int = 0

    @classmethod
    def of(cls, tables: Mapping[TableId, TableProgress]) -> "CopyOutline":
        """The outline of these tables."""
        names = sorted(tables)
        kinds = bytes(_kind(tables[name]) for name in names)
        outline = cls(names, kinds, array("Q", (tables[name].rows for name in names)))
        for name, kind in zip(names, kinds, strict=True):
            if kind == _WAITING:
                outline.waiting ^= name_digest(name)
        return outline

    def changed(
        self, changed: Mapping[TableId, TableProgress | None], tables: Mapping[TableId, TableProgress]
    ) -> "CopyOutline":
        """The outline after tables have ``changed``; None: a table is gone. ``tables`` are all tables then."""
        if len(changed) * _FEW > len(tables):
            return CopyOutline.of(tables)
        # Copied before they are changed: other outlines share the names.
        names, kinds, rows, waiting = self.names, bytearray(self.kinds), self.rows[:], self.waiting
        for table, progress in changed.items():
            place = bisect_left(names, table)
            is_there = place < len(names) and names[place] == table
            if is_there and kinds[place] == _WAITING:
                waiting ^= name_digest(table)
            if is_there is (progress is None):
                names = names.copy() if names is self.names else names
                end = place + is_there
                names[place:end], kinds[place:end] = ([], b"") if is_there else ([table], b"b")
                rows[place:end] = array("Q", () if is_there else (0,))
            if progress is not None:
                kinds[place], rows[place] = _kind(progress), progress.rows
                if kinds[place] == _WAITING:
                    waiting ^= name_digest(table)
        return CopyOutline(names, bytes(kinds), rows, waiting)

    @property
    def begun(self) -> Iterator[TableId]:
        """The tables that neither wait nor are whole."""
        return (self.names[found.start()] for found in _ONES_BEGUN.finditer(self.kinds))

    def ends(self, most: int) -> tuple[int, int]:
        """The number of whole tables at the beginning, and the index from which on tables wait, or most of them.

        From the index on only tables wait, unless more than ``most`` wait before it: then it is that of the first one
        that waits. A table that is made while others wait may be the last one.
        """
        whole = len(self.kinds) - len(self.kinds.lstrip(b"c"))
        behind = max(len(self.kinds.rstrip(b"w")), whole)
        if self.kinds.count(_WAITING, whole, behind) > most:
            behind = self.kinds.index(_WAITING, whole)
        return whole, behind

    def whole(self, begin: int, end: int) -> WholeTables:
        """The whole tables from index ``begin`` up to ``end``."""
        return WholeTables(self.names[begin], self.names[end - 1], sum(self.rows[begin:end]))

    def parted(self, begin: int, behind: int) -> tuple[list[TableId], list[WholeTables]]:
        """Single tables, and runs of whole ones, from index ``begin`` on; no waiting ones from ``behind`` on."""
        single, runs = list[TableId](), list[WholeTables]()
        for found in chain(
            _RUN_OR_ONE.finditer(self.kinds, begin, behind),
            _RUN_OR_ONE_NOT_WAITING.finditer(self.kinds, behind),
        ):
            if len(found[0]) > 1:
                runs.append(self.whole(*found.span()))
            else:
                single.append(self.names[found.start()])
        return single, runs

    def digest_from(self, begin: int) -> int:
        """The digest of the tables from index ``begin`` on that wait."""
        digest = self.waiting
        for found in _ONES_WAITING.finditer(self.kinds, 0, begin):
            digest ^= name_digest(self.names[found.start()])
        return digest


def _kind(progress: TableProgress) -> int:
    if progress.is_whole:
        return _WHOLE
    return _WAITING if progress == _WAITS else _BEGUN
