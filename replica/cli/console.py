"""The output of the command line: bytes on standard output, messages and the progress line on standard error."""

import codecs
import contextlib
import errno
import io
import os
import re
import sys
import time
from typing import BinaryIO, Final, TextIO, cast

from ..statistics.figures import size_text
from ..statistics.layout import printable

_LINE_CHARACTERS: Final = re.compile(r"([\n\t]+)")

PROGRAM: Final = "mysql-replica"

_COLUMNS: Final = 80  # for a terminal that does not report its width
_INTERVAL: Final = 0.2  # seconds between two updates of the progress line


class Console:
    """Standard output and error of one run."""

    def __init__(self, output: BinaryIO, errors: TextIO, *, is_closed: bool = False) -> None:
        self.output = output
        self._is_closed = is_closed
        self.errors = errors
        self._progress: Progress | None = None

    @classmethod
    def standard(cls) -> "Console":
        """The console of this process. Messages to a closed standard stream are discarded."""
        output = open(os.devnull, "wb") if sys.stdout is None else sys.stdout.buffer  # noqa: SIM115
        errors = open(os.devnull, "w") if sys.stderr is None else sys.stderr  # noqa: SIM115
        return cls(output, errors, is_closed=sys.stdout is None)

    def result(self) -> BinaryIO:
        """Standard output, for a command whose result goes there. Raises ``OSError`` if it is closed."""
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")
        return self.output

    def write(self, text: str) -> None:
        """Text on standard output; a terminal gets control characters of names and statements escaped."""
        terminal_output(self.output).write(text.encode("utf-8", "backslashreplace"))

    def note(self, text: str) -> None:
        """A message of one line on standard error."""
        if self._progress is not None:
            self._progress.clear()
        line = " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")
        # The text may contain messages of a source.
        self._say(f"{PROGRAM}: {printable(line)}\n")

    def lines(self, text: str) -> None:
        """Several lines on standard error, with control characters escaped: they may be a source's."""
        self._say(_escaped_lines(text).encode("utf-8", "replace").decode("utf-8"))

    def _say(self, text: str) -> None:
        # A full disk under the messages, or a terminal that has gone, must not end the work; the file keeps what it
        # could not write, and the next message tries again.
        with contextlib.suppress(OSError):
            self.errors.write(text)
            self.errors.flush()

    def progress(self, total: int | None, *, is_shown: bool = True) -> "Progress":
        """A progress line on standard error, if that is a terminal. Messages erase it first."""
        self._progress = Progress(self.errors, total, is_shown and self.errors.isatty())
        return self._progress

    def close_output(self) -> None:
        """The reader of the pipe has gone: discard buffered output."""
        _discard(self.output)

    def close_errors(self) -> None:
        """Discard messages that cannot be written: Python would end with the exit code 120."""
        try:
            self.errors.flush()
        except OSError:
            _discard(self.errors)


def _discard(file: BinaryIO | TextIO) -> None:
    """Let what the file still holds, and all that comes, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def terminal_output(output: BinaryIO) -> BinaryIO:
    """``output``, or if it is a terminal, a file that writes to it and escapes control characters.

    Names and statements of a log may hold escape sequences, which a terminal would obey. Files and pipes get every
    byte as it is.
    """
    return cast("BinaryIO", _Terminal(output)) if output.isatty() else output


class _Terminal(io.RawIOBase):
    """Writes text to a terminal: line ends and tabs as they are, other control characters as escapes."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._output.fileno()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        text = self._decoder.decode(data)
        self._output.write(_escaped_lines(text).encode())
        self._output.flush()
        return len(data)


def _escaped_lines(text: str) -> str:
    parts = _LINE_CHARACTERS.split(text)
    return "".join([part if _LINE_CHARACTERS.fullmatch(part) else printable(part) for part in parts])


class Progress:
    """A progress line on a terminal: bytes read, rate, time left. ``total`` is in bytes, None if unknown."""

    def __init__(self, errors: TextIO, total: int | None, is_shown: bool) -> None:
        self._errors = errors
        self._total = total
        self._start = self._last = time.monotonic()
        self._is_shown = is_shown
        self._width = 0

    def update(self, done: int) -> None:
        """Show that ``done`` bytes have been read, at most every 0.2 seconds."""
        if not self._is_shown:
            return
        now = time.monotonic()
        if now - self._last < _INTERVAL:
            return
        self._last = now
        self._write(progress_text(done, self._total, now - self._start))

    def show(self, text: str) -> None:
        """Show this text instead of bytes."""
        if self._is_shown:
            self._write(printable(text))

    def clear(self) -> None:
        """Erase the line."""
        if self._width:
            self._write("")
            self._errors.write("\r")
            self._errors.flush()
            self._width = 0

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._errors.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _write(self, text: str) -> None:
        # Text wider than the terminal would wrap, and could not be overwritten.
        text = text[: self._columns() - 1]
        self._errors.write(f"\r{text.ljust(self._width)}")
        self._errors.flush()
        self._width = len(text)


def progress_text(done: int, total: int | None, seconds: float) -> str:
    """Such as "120.0 MB of 1.0 GB (12%), 80.0 MB/s, 0:11 left"."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = f"{size_text(rate)}/s"
    if not total:
        return f"{size_text(done)}, {speed}"
    share = f"{size_text(done)} of {size_text(total)} ({min(done / total, 1):.0%}), {speed}"
    if not rate:
        return share
    return f"{share}, {clock_text((total - done) / rate)} left"


def clock_text(seconds: float) -> str:
    """A duration such as "0:11" or "1:02:03"; negative ones are 0."""
    minutes, second = divmod(round(max(seconds, 0)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
