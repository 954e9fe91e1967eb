"""``LogStatistics`` as one HTML file with charts and the same figures as tables; no network access, no script.

Names and statements of the log may hold any text, so all of them pass through ``text``. In addition, the page's
Content-Security-Policy keeps a browser from running or fetching anything.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from .collect import LogStatistics
from .figures import (
    count_text,
    length_text,
    number_of,
    seconds_text,
    short_text,
    size_text,
    steps_of,
    time_text,
)
from .page_charts import Chart, Series, bar, text
from .page_style import STYLE
from .summaries import MinuteStatistics, TransactionStatistics
from .text_report import class_labels

_STEPS: Final = 96
_TABLES: Final = 50
_LABELS: Final = 7
_DAY: Final = 86400
_OPERATIONS: Final = ("insert", "update", "delete")


def statistics_page(statistics: LogStatistics) -> str:
    """The whole page as HTML."""
    return "\n".join(_page(statistics)) + "\n"


def _page(statistics: LogStatistics) -> Iterator[str]:
    title = _title(statistics)
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{text(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>"
    yield f'<h1>{text(title)}</h1>\n<p class="lead">{text(_lead(statistics))}</p>'
    yield from _tiles(statistics)
    yield from _warnings(statistics)
    yield from _over_time(statistics)
    yield from _tables(statistics)
    for heading, transactions in (
        ("Largest transactions by rows", statistics.most_rows),
        ("Largest transactions by size", statistics.most_bytes),
        ("Longest transactions", statistics.longest),
    ):
        yield from _transactions(heading, transactions)
    yield '<div class="pair">'
    yield from _sizes(statistics)
    yield from _statements(statistics)
    yield "</div>"
    yield from _ddl(statistics)
    yield from _origin(statistics)
    yield "<footer>Times are UTC, by the servers' own clocks. Made by mysql-replica stats.</footer>"
    yield "</main>\n</body>\n</html>"


# ---------------------------------------------------------------------------------------------- title and summary


def _title(statistics: LogStatistics) -> str:
    files = statistics.files
    if not files:
        return "Binary log"
    return files[0] if len(files) == 1 else f"{files[0]} to {files[-1]}"


def _lead(statistics: LogStatistics) -> str:
    parts = [f"server {', '.join(statistics.versions)}"] if statistics.versions else []
    if statistics.first_time is not None and statistics.last_time is not None:
        parts.append(f"{time_text(statistics.first_time)} to {time_text(statistics.last_time)} UTC")
    return ", ".join(parts) or "Nothing was read."


def _tiles(statistics: LogStatistics) -> Iterator[str]:
    rows, minutes = statistics.rows, statistics.minutes
    first, last = statistics.first_time or 0, statistics.last_time or 0
    busiest = max(minutes, key=lambda minute: minute.total, default=None)
    tiles = [
        ("row changes", count_text(rows.total), f"in {number_of(len(statistics.tables), 'table')}"),
        (
            "transactions",
            count_text(statistics.transactions),
            f"{count_text(statistics.with_rows)} with rows",
        ),
        ("size", size_text(statistics.bytes), number_of(statistics.events, "event")),
        ("time", seconds_text(last - first), number_of(len(statistics.files), "file")),
    ]
    if busiest is not None and busiest.total:
        tiles.append(("busiest minute", count_text(busiest.total), f"rows, {time_text(busiest.start)[5:16]}"))
    if statistics.lag.count:
        lag = statistics.lag
        tiles.append(("longest lag", seconds_text(lag.maximum), f"{seconds_text(lag.mean)} on average"))
    if statistics.seconds_behind.count:
        behind = statistics.seconds_behind
        tiles.append(
            ("behind the source", seconds_text(behind.last), f"at most {seconds_text(behind.maximum)}")
        )
    yield '<dl class="tiles">'
    for label, value, more in tiles:
        yield f'<div><dt>{text(label)}</dt><dd>{text(value)}</dd><dd class="more">{text(more)}</dd></div>'
    yield "</dl>"


def _warnings(statistics: LogStatistics) -> Iterator[str]:
    found = []
    if statistics.incidents:
        found.append(
            f"{number_of(statistics.incidents, 'incident')}: the source says that events are missing."
        )
    if statistics.unfinished:
        found.append(f"{number_of(statistics.unfinished, 'transaction')} without an end: not counted here.")
    if statistics.in_transaction:
        found.append("The last transaction does not end in what was read: it is not counted here.")
    if found:
        yield '<section class="warning" role="note">'
        yield from (f"<p>{text(one)}</p>" for one in found)
        yield "</section>"


# ---------------------------------------------------------------------------------------------- over time


def _over_time(statistics: LogStatistics) -> Iterator[str]:
    length, steps = steps_of(statistics.minutes, _STEPS)
    if not steps:
        return
    per = f"per {length_text(length)}"
    yield '<section aria-labelledby="over-time"><h2 id="over-time">Over time</h2><div class="charts">'
    yield from _rows_chart(steps, length, per).html()
    yield '<div class="charts small">'
    yield from _one_series(
        "Transactions", f"commits {per}", steps, length, [step.transactions for step in steps], "transactions"
    ).html()
    yield from _sizes_chart(steps, length, per).html()
    lags = [step.max_lag for step in steps]
    if any(lag is not None for lag in lags):
        yield from _lag_chart(steps, length, per, lags).html()
    yield "</div></div>"
    yield from _step_figures(steps, length)
    yield "</section>"


def _rows_chart(steps: Sequence[MinuteStatistics], length: int, per: str) -> Chart:
    series = [Series(f"{name}s", name, [getattr(step, f"{name}s") for step in steps]) for name in _OPERATIONS]
    most = max(steps, key=lambda step: step.total)
    return Chart(
        "Row changes",
        f"rows {per}",
        [_step_text(step, length) for step in steps],
        _labels(steps, length),
        series,
        short_text,
        lambda value: count_text(int(value)),
        f"At most {count_text(most.total)} rows {per}, at {time_text(most.start)} UTC.",
    )


def _one_series(
    title: str,
    axis: str,
    steps: Sequence[MinuteStatistics],
    length: int,
    values: Sequence[int],
    noun: str,
) -> Chart:
    return Chart(
        title,
        axis,
        [_step_text(step, length) for step in steps],
        _labels(steps, length),
        [Series(noun, "plain", values)],
        short_text,
        lambda value: count_text(int(value)),
        f"At most {count_text(max(values))}.",
    )


def _sizes_chart(steps: Sequence[MinuteStatistics], length: int, per: str) -> Chart:
    values = [step.bytes for step in steps]
    return Chart(
        "Size",
        f"bytes of the log {per}",
        [_step_text(step, length) for step in steps],
        _labels(steps, length),
        [Series("", "plain", values)],
        lambda value: size_text(value).replace(".0 ", " "),
        size_text,
        f"At most {size_text(max(values))}.",
    )


def _lag_chart(
    steps: Sequence[MinuteStatistics], length: int, per: str, lags: Sequence[float | None]
) -> Chart:
    known = [lag for lag in lags if lag is not None]
    return Chart(
        "Lag",
        f"longest {per}",
        [_step_text(step, length) for step in steps],
        _labels(steps, length),
        # Clocks that differ can make a lag negative: it is drawn with height 0.
        [Series("", "plain", [None if lag is None else max(lag, 0) for lag in lags])],
        seconds_text,
        seconds_text,
        f"At most {seconds_text(max(known))}.",
    )


def _step_text(step: MinuteStatistics, length: int) -> str:
    return time_text(step.start)[: 10 if length >= _DAY else 16]


def _labels(steps: Sequence[MinuteStatistics], length: int) -> list[tuple[int, str]]:
    """Labels below some of the steps: the time of day, and the date whenever it changes."""
    stride = -(-len(steps) // _LABELS)
    labels, day = [], ""
    for index in range(0, len(steps), stride):
        whole = time_text(steps[index].start)
        date, clock = whole[:10], whole[11:16]
        if length >= _DAY:
            labels.append((index, date))
        else:
            labels.append((index, clock if date == day else f"{clock}\n{date}"))
        day = date
    return labels


def _step_figures(steps: Sequence[MinuteStatistics], length: int) -> Iterator[str]:
    yield '<details><summary>The same as figures</summary><div class="wide" tabindex="0"><table>'
    headings = ("from (UTC)", "transactions", "inserts", "updates", "deletes", "size", "lag")
    yield from _head(headings, numbers_from=1)
    for step in steps:
        if step.transactions or step.max_lag is not None:
            counts = (step.transactions, step.inserts, step.updates, step.deletes)
            lag = "" if step.max_lag is None else seconds_text(step.max_lag)
            yield from _row(_step_text(step, length), [*map(count_text, counts), size_text(step.bytes), lag])
    yield "</tbody></table></div></details>"


# ---------------------------------------------------------------------------------------------- tables


def _head(headings: Sequence[str], numbers_from: int) -> Iterator[str]:
    """The head of a table. Columns from ``numbers_from`` on hold numbers; an empty heading is for the bars."""
    yield "<thead><tr>"
    for index, heading in enumerate(headings):
        style = ' class="n"' if index >= numbers_from and heading else ""
        yield f'<th scope="col"{style}>{text(heading)}</th>' if heading else '<td class="bars"></td>'
    yield "</tr></thead><tbody>"


def _row(name: str, numbers: Sequence[str], end: str = "") -> Iterator[str]:
    cells = "".join(f'<td class="n">{text(number)}</td>' for number in numbers)
    yield f'<tr><th scope="row">{text(name)}</th>{cells}{end}</tr>'


def _tables(statistics: LogStatistics) -> Iterator[str]:
    tables = statistics.tables
    if not tables:
        return
    yield '<section aria-labelledby="tables"><h2 id="tables">Row changes by table</h2>'
    yield '<ul class="legend">'
    yield from (f'<li><i class="{name}"></i>{name}s</li>' for name in _OPERATIONS)
    yield '</ul><div class="wide" tabindex="0"><table>'
    yield from _head(
        ("table", "", "inserts", "updates", "deletes", "rows", "size", "transactions"), numbers_from=2
    )
    most = tables[0].total
    for table in tables[:_TABLES]:
        counts = table.inserts, table.updates, table.deletes
        shape = bar(list(zip(_OPERATIONS, counts, strict=True)), most)
        numbers = [*map(count_text, counts), count_text(table.total), size_text(table.bytes)]
        cells = "".join(
            f'<td class="n">{number}</td>' for number in [*numbers, count_text(table.transactions)]
        )
        yield f'<tr><th scope="row">{text(str(table))}</th><td class="bars">{shape}</td>{cells}</tr>'
    yield "</tbody></table></div>"
    if len(tables) > _TABLES:
        others = tables[_TABLES:]
        rows = count_text(sum(table.total for table in others))
        yield f"<p>{number_of(len(others), 'more table')} with {rows} row changes.</p>"
    yield "</section>"


def _transactions(heading: str, transactions: Sequence[TransactionStatistics]) -> Iterator[str]:
    if not transactions:
        return
    yield f'<section><h2>{text(heading)}</h2><div class="wide" tabindex="0"><table>'
    yield '<thead><tr><th scope="col">tables</th>'
    for name in ("rows", "size", "time", "begun (UTC)"):
        yield f'<th scope="col" class="n">{name}</th>'
    yield '<th scope="col">place and GTID</th></tr></thead><tbody>'
    for one in transactions:
        started = time_text(int(one.started.timestamp()))
        numbers = (count_text(one.rows), size_text(one.bytes), seconds_text(one.seconds), started)
        place = text(f"{one.file}:{one.position}") + (f"<br>{text(one.gtid)}" if one.gtid else "")
        yield from _row(
            ", ".join(one.tables) or "(no rows)", numbers, f'<td class="place"><code>{place}</code></td>'
        )
    yield "</tbody></table></div></section>"


def _sizes(statistics: LogStatistics) -> Iterator[str]:
    if not statistics.with_rows:
        return
    counts = statistics.rows_classes
    last = max(index for index, count in enumerate(counts) if count)
    counted = list(zip(class_labels(), counts, strict=True))[: last + 1]
    yield from _bars("Transactions by their rows", ("rows", "", "transactions"), counted)


def _statements(statistics: LogStatistics) -> Iterator[str]:
    if not statistics.statements:
        return
    counted = sorted(statistics.statements.items(), key=lambda item: (-item[1], item[0]))
    yield from _bars("Statements without rows", ("statement", "", "times"), counted)


def _bars(title: str, head: tuple[str, ...], counted: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A section with a table of names, each with a bar for its count."""
    yield f'<section><h2>{title}</h2><div class="wide" tabindex="0"><table>'
    yield from _head(head, numbers_from=2)
    most = max(count for _, count in counted)
    for name, count in counted:
        yield (
            f'<tr><th scope="row">{text(name)}</th><td class="bars">{bar([("plain", count)], most)}</td>'
            f'<td class="n">{count_text(count)}</td></tr>'
        )
    yield "</tbody></table></div></section>"


def _ddl(statistics: LogStatistics) -> Iterator[str]:
    if not statistics.ddl:
        return
    yield '<section><h2>Last DDL statements</h2><div class="wide" tabindex="0"><table>'
    yield '<thead><tr><th scope="col">begun (UTC)</th><th scope="col" class="n">took</th>'
    yield '<th scope="col">schema</th><th scope="col">statement</th></tr></thead><tbody>'
    for one in reversed(statistics.ddl):
        yield (
            f'<tr><td class="time">{_time(one.time)}</td><td class="n">{text(seconds_text(one.seconds))}</td>'
            f"<td>{text(one.schema)}</td><td><code>{text(one.sql)}</code></td></tr>"
        )
    yield "</tbody></table></div></section>"


def _time(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _origin(statistics: LogStatistics) -> Iterator[str]:
    """Events by type, and transactions by server."""
    yield '<div class="pair">'
    for heading, first, found in (
        ("Events by type", "type", list(statistics.event_types.items())),
        (
            "Transactions by server",
            "server id",
            sorted(
                ((str(server), count) for server, count in statistics.servers.items()),
                key=lambda one: -one[1],
            ),
        ),
    ):
        if found:
            yield f'<section><h2>{heading}</h2><div class="wide" tabindex="0"><table>'
            yield from _head((first, "number"), numbers_from=1)
            for name, count in found:
                yield from _row(name, [count_text(count)])
            yield "</tbody></table></div></section>"
    yield "</div>"
