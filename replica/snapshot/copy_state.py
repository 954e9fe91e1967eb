"""The state of a copy as the text that a checkpoint carries, and back. Pure: reads and writes no file.

The text is compact JSON, compressed where it is long. Values of keys that JSON has no form for are objects with one
member, which names the type.
"""

import json
from base64 import b64decode, b64encode
from bisect import bisect
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from zlib import compress, decompress
from zlib import error as ZlibError

from protocol.binlog.decoder import WantsTable
from protocol.errors import CheckpointError
from protocol.records import field, record, replace
from protocol.values.plain_values import plain_value, value_of_plain

from ..sql.xa import Xid
from .copied_selection import both_select, selected_by
from .copy_outline import CopyOutline, WholeTables
from .table_copy import TableProgress
from .touches import Key
from .transaction_touches import WHOLE_TABLE, KeyColumns, TableId
from .window import Bound

_VERSION: Final = 1
# With ranges of whole tables; earlier releases would leave these tables out of the copy.
_WITH_RANGES: Final = 2
#: If more tables than this wait or are whole, they are not named one by one, so that a checkpoint stays small.
MOST_NAMED: Final = 30
#: If a table has more keys to be read again, a checkpoint says that its copy begins anew.
MOST_KEYS: Final = 200
#: A text may be this much longer for such keys. The limit is low, as a checkpoint is written for each transaction.
MOST_TEXT: Final = 2000
# A longer text is compressed: it holds many keys to be read again, which are alike.
_MOST_PLAIN: Final = 1000
_COMPRESSED: Final = "zlib:"
_WAITS: Final = TableProgress()


@record(slots=True, frozen=True)
class Unnamed:
    """Tables that wait: the ``first`` of them, and a ``digest`` of all their names (``hidden_tables``).

    ``stated`` are tables that statements may have made since the copy began, or went on from a checkpoint, and that
    are not in the copy.
    """

    first: TableId
    digest: int
    stated: tuple[TableId, ...] = ()


@record(slots=True)
class CopyState:
    """The state of a copy in a checkpoint: the progress of its tables, and prepared XA transactions by their xid.

    Of a prepared transaction only the keys that it touched are kept, by table. ``has_all``: the copy was begun with
    all tables that the stream's filter let through, so that the text may name ranges of tables by their ends.
    ``selection`` is the text of that filter (``copied_selection``); empty if the checkpoint lacks it. ``unnamed``:
    the tables that wait, if the text names only the first of them. ``stated``: see ``Unnamed``; None if not known.
    ``outline`` is the outline of ``tables``, if it is at hand. ``orders`` has the ``KeyColumns.order`` of tables
    whose copy has begun. ``keyless`` are tables that are known to have no key.
    """

    tables: dict[TableId, TableProgress] = field(default_factory=dict)
    prepared: dict[Xid, dict[TableId, tuple[Key, ...]]] = field(default_factory=dict)
    has_all: bool = False
    selection: str = ""
    stated: frozenset[TableId] | None = frozenset()
    unnamed: Unnamed | None = field(default=None, compare=False)
    outline: CopyOutline | None = field(default=None, compare=False, repr=False)
    orders: Mapping[TableId, str] = field(default_factory=dict, compare=False)
    keyless: Collection[TableId] = field(default=(), compare=False)

    def progress_by(self, table: TableId, key: KeyColumns) -> TableProgress:
        """The progress of a table that has this key now. If the key was another one, the copy begins anew."""
        progress = self.tables[table]
        before = "" if table in self.keyless else self.orders.get(table, key.order)
        return progress if before == key.order or not progress.is_begun else progress.anew()

    @property
    def is_whole(self) -> bool:
        """Whether the copies of all tables are complete."""
        return all(progress.is_whole for progress in self.tables.values())

    @property
    def waiting(self) -> Iterator[TableId]:
        """The tables whose copies have not begun."""
        return (table for table, progress in self.tables.items() if progress == _WAITS)

    def to_text(self) -> str:
        """The text that ``from_text`` reads: names of tables that wait or are complete, progress of the others.

        Tables are copied in the order of their names. If there are many, two names stand for most of them: all tables
        up to the first name are whole, and all from the second name on wait, but for those that the text names, too.
        The first and the last of several whole tables in a row stand for all of them. If there are too many
        keys, the text says that the tables with most of them begin anew; then a consumer that goes on from here loses
        its rows of these tables.
        """
        lists = sorted(self._key_lists(), key=lambda one: len(one[2]))
        most = sum(len(keys) <= MOST_KEYS for _, _, keys in lists)
        text = self._without(lists[most:])._text()
        if len(text) <= MOST_TEXT:
            return text
        longest = len(self._without(lists)._text()) + MOST_TEXT
        kept = (
            bisect(range(most + 1), longest, key=lambda number: len(self._without(lists[number:])._text()))
            - 1
        )
        return self._without(lists[kept:])._text()

    def _key_lists(self) -> Iterator[tuple[TableId, Xid | None, tuple[Key, ...]]]:
        """The keys of each table to read again, and the keys that prepared transactions have touched."""
        outline = self.outline or CopyOutline.of(self.tables)
        for table in outline.begun:
            if again := self.tables[table].again:
                yield table, None, again
        for xid, touched in self.prepared.items():
            for table, keys in touched.items():
                yield table, xid, keys

    def _without(self, lists: Sequence[tuple[TableId, Xid | None, tuple[Key, ...]]]) -> "CopyState":
        """The same state without these keys: tables begin anew, or transactions touch unknown rows of them."""
        if not lists:
            return self
        tables, prepared = dict(self.tables), dict(self.prepared)
        for table, xid, _ in lists:
            if xid is None:
                tables[table] = tables[table].anew()
            else:
                prepared[xid] = {**prepared[xid], table: (WHOLE_TABLE,)}
        return replace(self, tables=tables, prepared=prepared)

    def select(
        self, selection: str, wants: WantsTable | None, listed: Iterable[TableId], *, copies_new: bool
    ) -> list[TableId]:
        """Apply the stream's ``selection``, by which tables leave the copy. Returns tables that come in.

        Tables come in only with ``copies_new``, if they were not selected before. Their copies begin anew, as the
        consumer may have rows of them from an earlier time when they were selected. ``listed`` are the tables of the
        source that are selected now.
        """
        if wants is not None:
            self.tables = {table: one for table, one in self.tables.items() if wants(*table)}
            # Transactions without tables stay: their XA COMMIT is then known to bring nothing.
            self.prepared = {
                xid: {table: keys for table, keys in touched.items() if table in self.tables}
                for xid, touched in self.prepared.items()
            }
        before = self.selection
        self.selection = selection if copies_new else both_select(before, selection)
        if before != selection:
            self.unnamed = None
        selected = selected_by(before)
        new = [] if selected is None else [table for table in listed if not selected(*table)]
        if self.selection != before and (new or selected is None):
            # Rows of prepared transactions in newly selected tables are not known: at an XA COMMIT all is read again.
            self.prepared = {}
        if not (copies_new and self.has_all) or before == selection:
            return []
        self.tables |= dict.fromkeys(new, TableProgress(is_void=True))
        return new

    def _text(self) -> str:
        waiting, whole, begun, orders = [], [], [], []
        outline = self.outline or CopyOutline.of(self.tables)
        tables, content = outline.names, dict[str, object](version=_VERSION, all=self.has_all)
        if self.has_all and len(tables) > MOST_NAMED:
            through, behind = outline.ends(MOST_NAMED)
            if through:
                content["through"] = _range_values(outline.whole(0, through))[2:]
            if behind < len(outline.names):
                content["from"] = self._unnamed_text(outline, behind)
            tables, ranges = outline.parted(through, behind)
            if ranges:
                content |= {"version": _WITH_RANGES, "ranges": [*map(_range_values, ranges)]}
        for schema, name in tables:
            progress = self.tables[schema, name]
            if progress.is_whole:
                whole.append([schema, name, progress.rows])
            elif progress == _WAITS:
                waiting.append([schema, name])
            else:
                begun.append([schema, name, *_progress_values(progress)])
                if order := self.orders.get((schema, name)):
                    orders.append([schema, name, order])
        prepared = [
            [
                xid.format_id,
                xid.gtrid.hex(),
                xid.bqual.hex(),
                [[*table, _keys(keys)] for table, keys in tables.items()],
            ]
            for xid, tables in self.prepared.items()
        ]
        if self.selection:
            content["selected"] = self.selection
        content |= {"waiting": waiting, "begun": begun, "whole": whole, "prepared": prepared}
        if 0 < len(self.keyless) <= MOST_NAMED:
            content["keyless"] = sorted(table for table in self.keyless if table in self.tables)
        if orders:
            content["orders"] = orders
        text = json.dumps(content, separators=(",", ":"))
        return text if len(text) <= _MOST_PLAIN else _COMPRESSED + b64encode(compress(text.encode())).decode()

    def _unnamed_text(self, outline: CopyOutline, begin: int) -> list[object]:
        first = outline.names[begin]
        stated = None if self.stated is None else sorted(table for table in self.stated if table >= first)
        if stated is None or len(stated) > MOST_NAMED:
            return [*first]
        return [*first, f"{outline.digest_from(begin):x}", stated]

    @classmethod
    def from_text(cls, text: str, listed: Iterable[TableId] = ()) -> "CopyState":
        """The reverse of ``to_text``; ``CheckpointError`` for any other text.

        ``listed`` are the tables of the source that the stream's filter lets through. The ranges of a text stand for
        those of them that were selected then. The last table of a range of whole tables gets the row count of all.
        """
        try:
            content = json.loads(_plain_text(text))
            if content["version"] not in (_VERSION, _WITH_RANGES):
                raise CheckpointError(
                    f"the checkpoint's copy has version {content['version']}; this library reads {_VERSION} and "
                    f"{_WITH_RANGES}: upgrade"
                )
            selection = str(content.get("selected", ""))
            wanted = selected_by(selection)
            known = listed if wanted is None else [table for table in listed if wanted(*table)]
            through = [["", "", *one] for one in (content.get("through"),) if one is not None]
            ranges = [_range(*values) for values in (*through, *content.get("ranges", ()))]
            tables = _in_ranges(ranges, content.get("from"), known)
            unnamed = _unnamed(*content.get("from") or ())
            for table in unnamed.stated if unnamed else ():
                # The log has brought its rows since it was made: without a key they would be counted twice.
                if tables.get(table) == _WAITS:
                    tables[table] = TableProgress(is_void=True)
            for schema, name in content["waiting"]:
                tables[schema, name] = TableProgress()
            for schema, name, rows in content["whole"]:
                tables[schema, name] = TableProgress(rows=rows, is_read=True, is_whole=True)
            for schema, name, *values in content["begun"]:
                tables[schema, name] = _progress(*values)
            prepared = {
                Xid(format_id, bytes.fromhex(gtrid), bytes.fromhex(bqual)): {
                    (schema, name): _keys_of(keys) for schema, name, keys in touched
                }
                for format_id, gtrid, bqual, touched in content["prepared"]
            }
            orders = {(schema, name): order for schema, name, order in content.get("orders", ())}
            keyless = frozenset((schema, name) for schema, name in content.get("keyless", ()))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"the checkpoint's copy cannot be read ({error}): copy the tables again, with start='snapshot'"
            ) from error
        return cls(
            tables,
            prepared,
            bool(content.get("all")),
            selection,
            unnamed=unnamed,
            orders=orders,
            keyless=keyless,
        )


def _plain_text(text: str) -> str:
    if not text.startswith(_COMPRESSED):
        return text
    try:
        return decompress(b64decode(text.removeprefix(_COMPRESSED), validate=True)).decode()
    except ZlibError as error:
        raise ValueError(error) from error


def _range_values(whole: WholeTables) -> list[object]:
    return [*whole.first, *whole.last, whole.rows]


def _range(schema: str, name: str, last_schema: str, last_name: str, rows: int) -> WholeTables:
    return WholeTables((str(schema), str(name)), (str(last_schema), str(last_name)), int(rows))


def _in_ranges(
    ranges: Sequence[WholeTables], begin: Any, listed: Iterable[TableId]
) -> dict[TableId, TableProgress]:
    """Listed tables in ``ranges`` of whole tables, which ascend, and waiting tables from ``begin`` on."""
    tables: dict[TableId, TableProgress] = {}
    left = deque(ranges)
    first = None if begin is None else (str(begin[0]), str(begin[1]))
    for table in sorted(listed):
        while left and left[0].last < table:
            left.popleft()
        if left and left[0].first <= table:
            rows = left[0].rows if table == left[0].last else 0
            tables[table] = TableProgress(rows=rows, is_read=True, is_whole=True)
        elif first is not None and table >= first:
            tables[table] = TableProgress()
    return tables


def _unnamed(schema: str = "", name: str = "", digest: str = "", stated: Any = ()) -> Unnamed | None:
    # Checkpoints of earlier versions have no digest.
    found = tuple((str(one), str(other)) for one, other in stated)
    return Unnamed((schema, name), int(digest, 16), found) if digest else None


def _progress_values(progress: TableProgress) -> list[object]:
    return [
        _bound_text(progress.after),
        _bound_text(progress.upto),
        _keys(progress.again),
        progress.rows,
        progress.is_read,
        progress.is_void,
    ]


def _progress(after: Any, upto: Any, again: Any, rows: int, is_read: bool, is_void: bool) -> TableProgress:
    return TableProgress(_bound(after), _bound(upto), _keys_of(again), rows, is_read, is_void=is_void)


def _bound_text(bound: Bound | None) -> list[str] | None:
    return None if bound is None else [part.decode("latin-1") for part in bound]


def _bound(texts: list[str] | None) -> Bound | None:
    return None if texts is None else tuple(text.encode("latin-1") for text in texts)


def _keys(keys: tuple[Key, ...]) -> list[list[object]]:
    return [[plain_value(value) for value in key] for key in keys]


def _keys_of(keys: list[list[Any]]) -> tuple[Key, ...]:
    return tuple(tuple(value_of_plain(value) for value in key) for key in keys)
