"""``HeldSignals``: an exception that a signal handler raises waits until asyncio is left.

Python runs signal handlers in the main thread, between any two instructions. An exception that comes up within
asyncio is logged as "Exception in callback" and lost, or ends the connection, or the loop never hears that it is
done: of 300 handlers that raised at random times one let a stream wait for ever. Celery's soft time limit is such
a handler.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_Called = Callable[[int, FrameType | None], Any]

# The signals that programs handle. To look at one takes a microsecond, so those of no use are left out.
_NAMES: Final = (
    *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGABRT"),
    *("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGUSR1", "SIGUSR2"),
)
_SIGNALS: Final = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))


class HeldSignals:
    """Holds exceptions of the program's signal handlers while asyncio runs; ``interrupt`` is called for each.

    The handlers themselves run at once. ``error`` is the first exception. Ctrl-C is raised at once if an exception is
    held already: what was interrupted does not end. Then ``is_broken_off`` is set.
    """

    def __init__(self, interrupt: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.is_broken_off = False
        self._interrupt = interrupt
        self._is_active = True
        self._held: list[tuple[signal.Signals, _Handler]] = []

    def hold(self) -> None:
        """Begin. Only the main thread may set handlers, and only there they run."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if isinstance(handler, _Handler):
                # A release that was cut off has left it.
                handler = handler.called
            if callable(handler):
                held = _Handler(handler, self)
                self._held.append((number, held))
                try:
                    signal.signal(number, held)
                except ValueError:
                    # The first thread of a second interpreter, or of an embedded one: it runs no handlers either.
                    return

    def release(self) -> None:
        """End: from here on exceptions are raised where the handlers run."""
        try:
            for number, held in self._held:
                called = held.called
                # The handler may have set another one.
                if signal.getsignal(number) is held:
                    signal.signal(number, called)
        finally:
            self._is_active = False

    def call(
        self, handler: Callable[[int, FrameType | None], object], number: int, frame: FrameType | None
    ) -> None:
        """Call a handler of the program."""
        try:
            handler(number, frame)
        except BaseException as error:
            if not self._is_active:
                raise
            if self.error is not None and isinstance(error, KeyboardInterrupt):
                self.is_broken_off = True
                raise
            self.error = self.error or error
            self._interrupt()


class _Handler:
    """A handler of the program, called through ``HeldSignals``."""

    def __init__(self, called: _Called, held: HeldSignals) -> None:
        self.called = called
        self._held = held

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._held.call(self.called, number, frame)
