"""Charts for a page: columns over time, and bars in the cells of a table. Inline SVG, which stretches; no script.

Only shapes are SVG: they are stretched to the page's width, and words would be, too. So labels are HTML around them,
placed in percent. Colours are those of the page's style, by class.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from .layout import printable

_TICKS: Final = 4
_NICE: Final = (1, 2, 2.5, 5, 10)
# Few columns are not to fill the page.
_PLACES: Final = 16
# Of a column's place, what it fills.
_FILLED: Final = 0.84


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of a chart: its name, its class, and a value for each step (None: nothing is known)."""

    name: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Columns over steps; several series stand on one another.

    ``axis`` says what is counted and ``steps`` what each step is, for people who point at it; ``labels`` are
    the texts below, by the index of their step. ``tick`` and ``value`` make text of numbers.
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
        # The whole height can be pointed at.
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
    """A bar of several colours for the cell of a table; one of ``most`` fills it."""
    left, shapes = 0.0, []
    for style, value in parts:
        width = 100 * value / most if most else 0
        if width:
            # What is there shall be seen.
            width = max(width, 0.4)
            shapes.append(f'<rect class="{style}" x="{left:.2f}" y="0" width="{width:.2f}" height="1"/>')
            left += width
    drawn = "".join(shapes)
    return f'<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


def text(words: str) -> str:
    """Words of any origin as HTML, with nothing in them that a browser would act upon or show as nothing."""
    return escape(printable(words))


def _legend(series: Sequence[Series]) -> Iterator[str]:
    yield '<ul class="legend">'
    for one in series:
        yield f'<li><i class="{one.style}"></i>{text(one.name)}</li>'
    yield "</ul>"


def _height(value: float, top: float) -> float:
    return 100 * value / top


def _scale(most: float) -> tuple[float, list[float]]:
    """Where the axis ends, and its numbers: round ones, few, zero included."""
    if most <= 0:
        return 1.0, [0.0]
    size = 10 ** math.floor(math.log10(most / _TICKS))
    step = next(size * nice for nice in _NICE if size * nice * _TICKS >= most * 0.999)
    count = math.ceil(most / step - 1e-9)
    return step * count, [step * number for number in range(count + 1)]
