"""Raises what a signal handler would raise, at each place where Python looks for signals: one after another.

Python runs handlers where a function begins or goes on, after a call of a function of C, and where a loop goes back.
"""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

_Made = TypeVar("_Made")

_CALLS: Final = {code for name, code in dis.opmap.items() if name.startswith("CALL")}
_PLACES: Final = {dis.opmap[name] for name in ("RESUME", "JUMP_BACKWARD") if name in dis.opmap}
_ROOT: Final = Path(__file__).parents[2]


class RaisedError(Exception):
    """What the signal handler raises."""


class _Points:
    """Counts the places in functions of the files below ``folders``, and raises at the one of this number."""

    def __init__(self, folders: tuple[str, ...], number: int) -> None:
        self.place = ""
        self._folders = tuple(str(_ROOT / folder) for folder in folders)
        self._number = number
        # The last instruction of each function that runs, and what it has called.
        self._last: dict[FrameType, tuple[int, str | None]] = {}

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        back = frame.f_back
        if back in self._last:
            self._last[back] = self._last[back][0], frame.f_code.co_name
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._last[frame] = -1, None
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event != "opcode":
            return self._step
        code = frame.f_code
        (before, called), now = self._last[frame], code.co_code[frame.f_lasti]
        self._last[frame] = now, None
        # No function of C is between two functions of Python, but where a class is called.
        if now in _PLACES or (before in _CALLS and called in (None, "__init__")):
            self._number -= 1
            if not self._number:
                self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
                raise RaisedError
        return self._step


def interrupted(
    make: Callable[[], _Made], use: Callable[[_Made], Any], *folders: str
) -> Iterator[tuple[str, Any]]:
    """Call ``use(make())`` with one exception at each of the places; yields the place, and what ``use`` returns.

    ``folders``: such as ``"replica/transactions"``. The exception comes up in ``use``, which goes on. A
    ``RuntimeError`` of it is yielded, too.
    """
    before = sys.gettrace()
    # Python 3.12 traces instructions if any frame has asked for them before `settrace`.
    sys._getframe().f_trace_opcodes = True
    for number in itertools.count(1):
        points, made = _Points(folders, number), make()
        sys.settrace(points.trace)
        try:
            result = use(made)
        except RuntimeError as error:
            result = error
        finally:
            sys.settrace(before)
        if not points.place:
            return
        yield points.place, result
