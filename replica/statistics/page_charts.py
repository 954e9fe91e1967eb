"""Charts for the page: columns over time, and bars in the cells of a table. Inline SVG, no script.

Only shapes are SVG, because it is stretched to the page's width, which would distort words. Labels are HTML around
the SVG, placed in percent. The page's style sets the colours, by class.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from protocol.records import record

from .layout import printable

_TICKS: Final = 4
_NICE: Final = (1, 2, 2.5, 5, 10)
# Fewer columns than this do not fill the page.
_PLACES: Final = 16
# The part of its place that a column fills.
_FILLED: Final = 0.84


@record(frozen=True, slots=True)
class Series:
    """One series of a chart: its name, its CSS class, and a value for each step (None: unknown)."""

    name: str
    style: str
    values: Sequence[float | None]


@record(frozen=True, slots=True)
class Chart:
    """A column chart over steps of time; several series are stacked.

    ``axis`` names the measure. ``steps`` are the texts shown when the pointer is on a step, ``labels`` the texts
    below the chart by the index of their step. ``tick`` and ``value`` format numbers.
    """

    title: str
    axis: str
    steps: Sequence[str]
    labels: Sequence[tuple[int, str]]
    series: Sequence[Series]
    tick: Callable[[float], str]
    value: Callable[[float], str]
    summary: str = ""

    def html(self) -> Iterator[str]:
        """The chart with its title, axes and legend."""
        sums = [sum(value or 0 for value in values) for values in zip(*self._values(), strict=True)]
        top, ticks = _scale(max(sums, default=0))
        width = max(len(sums), _PLACES)
        yield f'<figure class="chart"><figcaption><h3>{text(self.title)}</h3>'
        yield f'<p class="axis">{text(self.axis)}</p>'
        if len(self.series) > 1:
            yield from _legend(self.series)
        yield '</figcaption><div class="plot"><div class="ticks" aria-hidden="true">'
        for tick in ticks:
            yield f'<span style="bottom:{tick / top:.2%}">{text(self.tick(tick))}</span>'
        yield f'</div><svg viewBox="0 0 {width} 100" preserveAspectRatio="none" role="img" '
        yield f'aria-label="{text(f"{self.title}. {self.summary}")}">'
        for tick in ticks:
            height = _height(tick, top)
            yield f'<line class="grid" x1="0" x2="{width}" y1="{100 - height}" y2="{100 - height}"/>'
        for index in range(len(sums)):
            yield from self._column(index, top)
        yield '</svg><div class="times" aria-hidden="true">'
        yield from self._labels(width)
        yield "</div></div></figure>"

    def _values(self) -> list[Sequence[float | None]]:
        return [series.values for series in self.series]

    def _column(self, index: int, top: float) -> Iterator[str]:
        parts = [(series, series.values[index]) for series in self.series]
        if not any(value is not None for _, value in parts):
            return
        said = ", ".join(
            f"{self.value(value)} {series.name}".strip() for series, value in parts if value is not None
        )
        yield f"<g><title>{text(self.steps[index])}: {text(said)}</title>"
        # The pointer may be anywhere on the chart's height.
        yield f'<rect class="back" x="{index}" y="0" width="1" height="100"/>'
        bottom = 100.0
        for series, value in parts:
            height = _height(value or 0, top)
            if height:
                bottom -= height
                left = index + (1 - _FILLED) / 2
                yield (
                    f'<rect class="{series.style}" x="{left:.2f}" y="{bottom:.3f}" width="{_FILLED}" '
                    f'height="{height:.3f}"/>'
                )
        yield "</g>"

    def _labels(self, count: int) -> Iterator[str]:
        for number, (index, label) in enumerate(self.labels):
            lines = "<br>".join(map(text, label.split("\n")))
            place = "first" if not number else "last" if index > 0.92 * count else "inner"
            odd = " odd" if number % 2 else ""
            yield f'<span class="{place}{odd}" style="left:{(index + 0.5) / count:.2%}">{lines}</span>'


def bar(parts: Sequence[tuple[str, float]], most: float) -> str:
    """A bar of several colours for a table cell; a bar of length ``most`` fills the cell."""
    left, shapes = 0.0, []
    for style, value in parts:
        width = 100 * value / most if most else 0
        if width:
            # A value above zero must be visible.
            width = max(width, 0.4)
            shapes.append(f'<rect class="{style}" x="{left:.2f}" y="0" width="{width:.2f}" height="1"/>')
            left += width
    drawn = "".join(shapes)
    return f'<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


def text(words: str) -> str:
    """Any text as HTML: markup is escaped, control and invisible characters are shown as escape sequences."""
    return escape(printable(words))


def _legend(series: Sequence[Series]) -> Iterator[str]:
    yield '<ul class="legend">'
    for one in series:
        yield f'<li><i class="{one.style}"></i>{text(one.name)}</li>'
    yield "</ul>"


def _height(value: float, top: float) -> float:
    return 100 * value / top


def _scale(most: float) -> tuple[float, list[float]]:
    """The end of the axis, and its few round tick numbers, zero included."""
    if most <= 0:
        return 1.0, [0.0]
    size = 10 ** math.floor(math.log10(most / _TICKS))
    step = next(size * nice for nice in _NICE if size * nice * _TICKS >= most * 0.999)
    count = math.ceil(most / step - 1e-9)
    return step * count, [step * number for number in range(count + 1)]
