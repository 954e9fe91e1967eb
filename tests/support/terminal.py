"""A terminal for programs under test: what they show on it, its size, and Ctrl-C as somebody presses it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

from replica.statistics.layout import cell_width

CTRL_C = b"\x03"
SECONDS = 60
# The shell is the session's leader, so that the terminal it opens becomes the one that its signals come from.
_OPEN_TERMINAL = 'exec "$@" <"$0" >"$0" 2>"$0"'
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_READ_SIZE = 1 << 16


class Terminal:
    """A program on a terminal. ``text`` is all that it has written so far, colours included."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.text = ""
        self._master = master
        self._data = b""

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, columns: int) -> None:
        _set_size(self._master, columns)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until it has shown this; colours do not count."""
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, self.plain)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            assert self._read(0.2), f"it has ended without {pattern!r}:\n{self.text}"
        return found

    def end(self) -> int:
        """Read what is left, and its exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(0.2):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self.process.wait(SECONDS)

    @property
    def plain(self) -> str:
        """The text without colours."""
        return _COLOUR.sub("", self.text)

    def lines(self) -> list[str]:
        """What the screen shows, line by line: nothing but text, colours, and a return to the line's beginning."""
        assert "\x1b" not in self.plain
        # Ctrl-C is shown by the terminal itself, wherever it stands.
        text = self.plain.replace("^C", "").replace("\r\n", "\n")
        return [line.rsplit("\r", 1)[-1] for line in text.split("\n")]

    def widest(self) -> int:
        """The cells of its widest line."""
        return max(map(cell_width, self.lines()))

    def _read(self, seconds: float) -> bool:
        """Whether the program may write more."""
        has_ended = self.process.poll() is not None
        if not select.select([self._master], [], [], 0 if has_ended else seconds)[0]:
            return not has_ended
        self._data += os.read(self._master, _READ_SIZE)
        self.text = self._data.decode("utf-8", "replace")
        return True


def _keep_output(terminal: int) -> None:
    """Keep what is not read yet when Ctrl-C is pressed. Terminals discard it, which joins two halves of lines."""
    attributes = termios.tcgetattr(terminal)
    attributes[3] |= termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _set_size(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@contextlib.contextmanager
def on_terminal(*arguments: str, columns: int = 80, **environment: str) -> Iterator[Terminal]:
    """``python -m replica`` with these arguments, on a terminal of so many columns that has 16 colours."""
    master, slave = pty.openpty()
    _set_size(master, columns)
    _keep_output(slave)
    name = os.ttyname(slave)
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "COLORTERM", "COLUMNS", "FORCE_COLOR")
    }
    command = ["sh", "-c", _OPEN_TERMINAL, name, sys.executable, "-m", "replica", *arguments]
    process = subprocess.Popen(
        command, start_new_session=True, env=kept | {"TERM": "xterm-16color"} | environment
    )
    try:
        # The slave's end is kept open: what the program writes can be read when it has ended.
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(slave)
        os.close(master)
