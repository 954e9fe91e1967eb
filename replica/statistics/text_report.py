"""``LogStatistics`` as a text report: a summary, then tables that fit the terminal, as lines of ``layout``."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from protocol.records import record

from .collect import LogStatistics
from .figures import count_text, length_text, number_of, seconds_text, size_text, steps_of, time_text
from .layout import ELLIPSIS, Line, Role, Span, cell_width, cut, printable
from .summaries import ROWS_CLASSES, MinuteStatistics, TableStatistics, TransactionStatistics

#: Further tables are summed up in one line.
TABLES_SHOWN: Final = 20
_TRANSACTIONS_SHOWN: Final = 5
_STEPS_SHOWN: Final = 24
_DDL_SHOWN: Final = 8
_LEAST_WIDTH: Final = 40
_GAP: Final = 2
# A text is cut to this width before columns are left out; a time still shows its minute.
_LEAST_TEXT: Final = 16
_FILE_NAME: Final = 14


@record(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, whether it holds numbers, and the role of its text.

    ``spare``: if the table is too wide, the column with the highest number is left out first; 0: never left out.
    """

    heading: str
    is_number: bool = False
    role: Role = ""
    spare: int = 0


@record(frozen=True, slots=True)
class TextTable:
    """A title, columns, and rows of texts.

    If the table is too wide, the first column of text is cut; if that is not enough, spare columns are left out.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def lines(self, width: int) -> Iterator[Line]:
        """The table's lines, at most ``width`` cells wide."""
        texts = [[printable(text) for text in row] for row in self.rows]
        headings = [column.heading for column in self.columns]
        widths = [max(map(cell_width, column)) for column in zip(headings, *texts, strict=True)]
        elastic = next(index for index, column in enumerate(self.columns) if not column.is_number)
        shown = self._fitting(widths, elastic, width)
        others = sum(widths[index] + _GAP for index in shown) - widths[elastic] - _GAP
        widths[elastic] = max(min(widths[elastic], width - others), len(headings[elastic]))
        yield [Span(self.title, "heading")]
        yield self._line(shown, headings, widths, "comment")
        for row in texts:
            yield self._line(shown, row, widths, "")

    def _fitting(self, widths: Sequence[int], elastic: int, width: int) -> list[int]:
        """The indexes of the shown columns: as many as leave the elastic column its minimum width."""
        shown = list(range(len(widths)))
        spare = [index for index in shown if self.columns[index].spare]
        spare.sort(key=lambda index: self.columns[index].spare)
        saved = max(widths[elastic] - _LEAST_TEXT, 0)
        while spare and sum(widths[index] + _GAP for index in shown) - _GAP - saved > width:
            shown.remove(spare.pop())
        return shown

    def _line(
        self, shown_columns: Sequence[int], texts: Sequence[str], widths: Sequence[int], role: Role
    ) -> Line:
        line: Line = []
        for index in shown_columns:
            column, text, width = self.columns[index], texts[index], widths[index]
            shown = cut(text, width)
            space = " " * (width - cell_width(shown))
            gap = " " * _GAP if line else ""
            # Zeros are dimmed.
            span = Span(shown, role or ("comment" if shown == "0" else column.role))
            line += [Span(gap + space), span] if column.is_number else [Span(gap), span, Span(space)]
        while line and not line[-1].text.strip():
            line.pop()
        return line


def statistics_lines(statistics: LogStatistics, width: int = 80) -> Iterator[Line]:
    """The whole report in lines of at most ``width`` cells (at least 40), unless large figures need more."""
    width = max(width, _LEAST_WIDTH)
    for label, text in summary(statistics):
        yield [Span(f"{label:<13}", "comment"), Span(cut(printable(text), width - 13))]
    for table in _tables(statistics, width):
        yield []
        yield from table.lines(width)


def summary(statistics: LogStatistics) -> Iterator[tuple[str, str]]:
    """The summary at the top: labels and texts."""
    yield "log", f"{_files(statistics)}{size_text(statistics.bytes)}, {number_of(statistics.events, 'event')}"
    if statistics.versions:
        yield "server", ", ".join(statistics.versions)
    first, last = statistics.first_time, statistics.last_time
    if first is not None and last is not None:
        span = f" ({seconds_text(last - first)})" if last > first else ""
        yield "time (UTC)", f"{time_text(first)} to {time_text(last)}{span}"
    with_rows = count_text(statistics.with_rows)
    yield "transactions", f"{count_text(statistics.transactions)}, {with_rows} of them with rows"
    rows = statistics.rows
    yield (
        "row changes",
        f"{count_text(rows.total)}: {number_of(rows.inserts, 'insert')}, {number_of(rows.updates, 'update')}, "
        f"{number_of(rows.deletes, 'delete')}",
    )
    if len(statistics.servers) > 1:
        parts = [f"{server} ({number_of(count, 'transaction')})" for server, count in _servers(statistics)]
        yield "server ids", ", ".join(parts)
    yield from _lags(statistics)
    yield from _troubles(statistics)


def _files(statistics: LogStatistics) -> str:
    files = statistics.files
    if not files:
        return ""
    return f"{files[0]}, " if len(files) == 1 else f"{files[0]} to {files[-1]}, {len(files)} files, "


def _servers(statistics: LogStatistics) -> list[tuple[int, int]]:
    return sorted(statistics.servers.items(), key=lambda item: -item[1])


def _lags(statistics: LogStatistics) -> Iterator[tuple[str, str]]:
    lag = statistics.lag
    if lag.count:
        yield (
            "lag",
            f"mean {seconds_text(lag.mean)}, longest {seconds_text(lag.maximum)}, "
            f"over {number_of(lag.count, 'transaction')} of other servers",
        )
    behind = statistics.seconds_behind
    if behind.count:
        yield (
            "behind",
            f"{seconds_text(behind.last)} at the end, at most {seconds_text(behind.maximum)}",
        )


def _troubles(statistics: LogStatistics) -> Iterator[tuple[str, str]]:
    if statistics.incidents:
        yield "incidents", f"{count_text(statistics.incidents)}: the source says that events are missing"
    if statistics.unfinished:
        yield (
            "cut off",
            f"{number_of(statistics.unfinished, 'transaction')} without an end, not counted here",
        )
    if statistics.in_transaction:
        yield "open", "the last transaction does not end in what was read: not counted"


def _tables(statistics: LogStatistics, width: int) -> Iterator[TextTable]:
    for make in (_changes, _largest, _longest, _sizes, _over_time, _statements, _ddl):
        table = make(statistics, width)
        if table.rows:
            yield table


def _changes(statistics: LogStatistics, width: int) -> TextTable:
    columns = (
        Column("table", role="table"),
        Column("inserts", True, "insert"),
        Column("updates", True, "update"),
        Column("deletes", True, "delete"),
        Column("rows", True),
        Column("size", True, spare=1),
    )
    tables = statistics.tables
    rows = [_table_row(str(table), table) for table in tables[:TABLES_SHOWN]]
    others = tables[TABLES_SHOWN:]
    if others:
        rows.append(_table_row(f"{count_text(len(others))} more", added(others)))
    return TextTable("Row changes by table", columns, rows)


def added(tables: Sequence[TableStatistics]) -> TableStatistics:
    """The sum of several tables, without a name."""
    whole = TableStatistics()
    for table in tables:
        whole.inserts += table.inserts
        whole.updates += table.updates
        whole.deletes += table.deletes
        whole.events += table.events
        whole.bytes += table.bytes
    return whole


def _table_row(name: str, table: TableStatistics) -> tuple[str, ...]:
    counts = (table.inserts, table.updates, table.deletes, table.total)
    return (name, *map(count_text, counts), size_text(table.bytes))


def _largest(statistics: LogStatistics, width: int) -> TextTable:
    return _transactions("Largest transactions", statistics.most_rows or statistics.most_bytes)


def _longest(statistics: LogStatistics, width: int) -> TextTable:
    return _transactions("Longest transactions", statistics.longest)


def _transactions(title: str, transactions: Sequence[TransactionStatistics]) -> TextTable:
    columns = (
        Column("tables", role="table"),
        Column("rows", True),
        Column("size", True),
        Column("time", True, spare=2),
        Column("begun (UTC)", True, "time", spare=3),
        Column("at", True, "place", spare=1),
    )
    rows = [
        (
            ", ".join(one.tables) or "(no rows)",
            count_text(one.rows),
            size_text(one.bytes),
            seconds_text(one.seconds),
            _short_time(one.started),
            _place(one),
        )
        for one in transactions[:_TRANSACTIONS_SHOWN]
    ]
    return TextTable(title, columns, rows)


def _place(transaction: TransactionStatistics) -> str:
    """The transaction's begin as file:position; a long file name is cut to its end, which has the number."""
    file = transaction.file
    return f"{file if len(file) <= _FILE_NAME else ELLIPSIS + file[1 - _FILE_NAME :]}:{transaction.position}"


def _short_time(time: datetime) -> str:
    return f"{time:%m-%d %H:%M:%S}"


def _sizes(statistics: LogStatistics, width: int) -> TextTable:
    columns = (
        Column("rows in a transaction"),
        Column("transactions", True),
        Column("", role="update", spare=1),
    )
    counts = statistics.rows_classes
    bar = bars(counts, width - 42)
    rows = [
        (label, count_text(count), bar(count)) for label, count in zip(class_labels(), counts, strict=True)
    ]
    while rows and not counts[len(rows) - 1]:
        rows.pop()
    return TextTable("Transactions by their rows", columns, rows)


def class_labels() -> list[str]:
    """The names of the classes of ``rows_classes``: "1", "2 to 10"..."""
    lows = [1, *(end + 1 for end in ROWS_CLASSES)]
    labels = [
        str(low) if low == high else f"{low:,} to {high:,}"
        for low, high in zip(lows, ROWS_CLASSES, strict=False)
    ]
    return [*labels, f"more than {ROWS_CLASSES[-1]:,}"]


def _over_time(statistics: LogStatistics, width: int) -> TextTable:
    length, steps = steps_of(statistics.minutes, _STEPS_SHOWN)
    columns = [
        Column("from (UTC)", role="time"),
        Column("transactions", True),
        Column("rows", True),
        Column("size", True, spare=2),
    ]
    has_lag = any(step.max_lag is not None for step in steps)
    if has_lag:
        columns.append(Column("lag", True, spare=1))
    bar = bars([step.total for step in steps], max(width - 56 - 8 * has_lag, 4))
    columns.append(Column("", role="update", spare=3))
    # Steps without commits are shown as one line.
    rows = [
        _step_row(step, has_lag, bar) if step.transactions else (ELLIPSIS, *[""] * (len(columns) - 1))
        for before, step in pairwise([*steps[:1], *steps])
        if step.transactions or before.transactions
    ]
    return TextTable(f"Per {length_text(length)}", columns, rows)


def _step_row(step: MinuteStatistics, has_lag: bool, bar: Callable[[int], str]) -> tuple[str, ...]:
    lag = () if not has_lag else ("" if step.max_lag is None else seconds_text(step.max_lag),)
    counts = count_text(step.transactions), count_text(step.total)
    return (time_text(step.start)[:16], *counts, size_text(step.bytes), *lag, bar(step.total))


def bars(counts: Sequence[int], width: int) -> Callable[[int], str]:
    """A function that draws a number as a bar; the largest of ``counts`` is ``width`` cells long."""
    most = max(counts, default=0) or 1
    return lambda count: "▇" * (-(-count * width // most)) if count else ""


def _statements(statistics: LogStatistics, width: int) -> TextTable:
    columns = (Column("statement", role="statement"), Column("times", True))
    counted = sorted(statistics.statements.items(), key=lambda item: (-item[1], item[0]))
    return TextTable(
        "Statements without rows", columns, [(name, count_text(count)) for name, count in counted]
    )


def _ddl(statistics: LogStatistics, width: int) -> TextTable:
    columns = (
        Column("statement", role="statement"),
        Column("took", True, spare=2),
        Column("begun (UTC)", True, "time", spare=1),
    )
    rows = [
        (one.sql, seconds_text(one.seconds), _short_time(one.time)) for one in statistics.ddl[-_DDL_SHOWN:]
    ]
    return TextTable("Last DDL statements", columns, rows)
