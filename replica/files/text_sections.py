"""``decode --workers``: sections of a log -> text in shared memory -> one text, byte for byte that of one process.

    process: section, the state that is expected at its beginning -> text, the state at its end
    caller:  is the expectation right? -> the text. If not, the caller renders the section itself.

The text of an event depends on the text before it: session settings, the current schema. Most sections end with the
settings that they began with, so later sections are expected to begin with the newest known state. Rows change no
settings: the state after the first section is found without its rows, before it is rendered.
"""

from collections import deque
from collections.abc import Callable
from io import BytesIO
from typing import IO, BinaryIO

from protocol.errors import ReplicaError
from protocol.records import record, replace

from ..mysqlbinlog.event_text import TextRenderer, TextState
from .log_files import LogFile
from .sections import OpenSection, SectionLog, SharedReading


@record(frozen=True, slots=True)
class TextSetting:
    """How the text is written."""

    hexdump: bool


def render_section(
    open_section: OpenSection, setting: TextSetting, expected: TextState | None, output: IO[bytes]
) -> TextState | None:
    """The work of a process on one section; returns the state at its end. No expected state: the text begins here."""
    renderer = TextRenderer(output, setting.hexdump)
    if expected is not None:
        renderer.resume(expected)
    with open_section(renderer.cells) as log:
        _render(log, renderer)
    return renderer.pause()


def _render(log: SectionLog, renderer: TextRenderer) -> None:
    render = renderer.render
    for raw, position, event in log.raw_events():
        render(raw, position, event)


class SharedText:
    """Writes the text of a log to ``output``."""

    def __init__(self, shared: SharedReading, setting: TextSetting, output: BinaryIO) -> None:
        self._shared = shared
        self._setting = setting
        self._output = output
        # The state at the end of the text so far; None before the first event.
        self._state: TextState | None = None
        # The renderer of the text so far, if it cannot pause.
        self._renderer: TextRenderer | None = None
        # The states expected at the beginnings of the sections in flight, and of later ones.
        self._expected: deque[TextState | None] = deque()
        self._guess: TextState | None = None
        self._is_begun = False

    def write(self, read_on: Callable[[], None]) -> None:
        """Write all of the text; calls ``read_on`` after each section. Raises the errors of reading the log."""
        with self._shared as shared:
            for file, answer in shared.answers(self._expect):
                expected = self._expected.popleft()
                is_whole = isinstance(answer.facts, TextState) or answer.error is not None
                if self._renderer is None and expected == self._state and is_whole:
                    self._output.write(answer.data)
                    if answer.error is not None:
                        raise answer.error
                    assert isinstance(answer.facts, TextState)
                    self._state = answer.facts
                else:
                    self._repeat(file)
                self._guess = self._state
                read_on()
        (self._renderer or self._new_renderer()).finish()

    def _expect(self, file: LogFile) -> TextState | None:
        """The state that is expected at the beginning of a section."""
        expected = self._guess
        if not self._is_begun:
            self._is_begun = True
            self._guess = self._state_behind(file)
        self._expected.append(expected)
        return expected

    def _state_behind(self, file: LogFile) -> TextState | None:
        """The state after the first section, read without its rows."""
        recipe = self._shared.recipe
        without_rows = replace(recipe, selection=replace(recipe.selection, exclude_tables=("*",)))
        renderer = TextRenderer(BytesIO())
        try:
            with without_rows.open(file, renderer.cells) as log:
                _render(log, renderer)
        except ReplicaError:
            # The process that renders the section reports the error at its place.
            return None
        return renderer.pause()

    def _new_renderer(self) -> TextRenderer:
        renderer = TextRenderer(self._output, self._setting.hexdump)
        if self._state is not None:
            renderer.resume(self._state)
        return renderer

    def _repeat(self, file: LogFile) -> None:
        """Render a section here, from the true state."""
        renderer = self._renderer or self._new_renderer()
        with self._shared.recipe.open(file, renderer.cells) as log:
            _render(log, renderer)
        self._state = renderer.pause()
        self._renderer = renderer if self._state is None else None
