"""``LoopDriver``: awaits coroutines for code that is not asynchronous, with an event loop of its own.

The loop runs only while somebody waits, in the thread that waits. A thread whose own event loop is running (in a
notebook, in a callback of asyncio) cannot run a second one: there a helper thread runs it, and the caller waits.
"""

import _thread
import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import wait
from selectors import BaseSelector, DefaultSelector
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from ..config.after_fork import cut_off, forget_in_children
from .held_signals import HeldSignals
from .helper_thread import HelperThread, is_loop_running

_Result = TypeVar("_Result")
_Item = TypeVar("_Item", covariant=True)
# Below asyncio.run the first Ctrl-C raises nothing, it cancels the task: how often, in seconds, that is looked at.
_LOOK: Final = 0.2
# The shortest time limit, in seconds: what has arrived is read within it.
_AT_HAND: Final = 0.01


class _Items(Protocol[_Item]):
    """An asynchronous iterator of a stream's."""

    def __anext__(self) -> Coroutine[Any, Any, _Item]: ...


class LoopDriver:
    """One event loop, and a lock that only one thread drives it at a time."""

    def __init__(self) -> None:
        self._helper: HelperThread | None = None
        self._selector: BaseSelector | None = None
        self._runner = self._new_runner()
        self._lock = threading.RLock()
        self._process = 0
        self._forget: Callable[[], None] | None = None
        self._is_closed = False
        self._is_waiting = False
        self._is_kept = False
        # Whether a second Ctrl-C was raised at once, in the middle of what decodes the log.
        self._is_torn = False
        self._noticed: tuple[asyncio.Task[Any], int] | None = None
        # The exception of a signal handler that came when the work was done: the next call of ``run`` raises it.
        self.overdue: BaseException | None = None
        # An item that ``next`` has fetched, and of which iterator. It stays here if a signal handler raises then.
        self.fetched: tuple[object, Any] | None = None
        # When ``next`` gives up, by ``time.monotonic``; None: never.
        self._deadline: float | None = None

    def drop(self, end: Callable[[], None]) -> None:
        """Nobody holds the stream any more: call ``end``, and end what the loop has left, such as a copy's tasks."""

        def work() -> None:
            end()
            self._runner.close()

        if self._is_closed or self.is_foreign:
            return
        self._is_closed = True
        if self._helper is not None:
            self._helper.submit(work)
            self._helper.leave()
        elif is_loop_running():
            # The garbage collector came in the loop of another stream. It may also have come where ``threading`` has
            # its lock, which a Thread would wait for.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(work, ())
        else:
            work()

    def keep(self, forget: Callable[[], None]) -> None:
        """Keep the loop between two calls of ``run``, until ``close`` or ``let_go``.

        ``forget`` is called in forked processes.
        """
        if self._is_kept:
            # A forked process that enters its parent's stream must not pass for the one that opened it.
            return
        self._is_kept = True
        self._process = os.getpid()
        self._forget = forget
        forget_in_children(self)

    def forget(self) -> None:
        """In a forked process: the epoll descriptor is that of the parent, whose sockets must stay in it."""
        self.fetched = None
        if self._forget is not None:
            self._forget()
        descriptor = getattr(self._selector, "fileno", None)
        if descriptor is not None and self._is_kept and not self._is_closed:
            cut_off(descriptor())
            for task in asyncio.all_tasks(self._runner.get_loop()):
                # Nobody awaits it here: asyncio would say so, and its end fail, when the child drops it.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                # It runs in another thread of the parent.
                with contextlib.suppress(ValueError):
                    task.get_coro().close()

    @contextlib.contextmanager
    def timeout(self, seconds: float | None) -> Iterator[None]:
        """Within the block ``next`` raises ``TimeoutError`` when it would wait for longer than up to its end."""
        before = self._deadline
        if seconds is not None:
            self._deadline = min(monotonic() + max(seconds, _AT_HAND), before or float("inf"))
        try:
            yield
        finally:
            self._deadline = before

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, _Result]],
        *,
        is_last: bool = False,
        deadline: float | None = None,
    ) -> _Result:
        """Await ``work()`` and return its result. Raises ``RuntimeError`` after ``close``, and in a forked process.

        ``is_last``: nothing is lost if an exception of a signal handler is raised instead of the result.
        ``deadline``: when ``work`` is cancelled, and ``TimeoutError`` is raised.
        """
        with self._usable(is_last=is_last):
            if not is_last:
                self._raise_overdue()
            self._is_waiting = True
            results: list[_Result] = []
            try:
                try:
                    self._wait(lambda: _collect(work, results, deadline))
                except BaseException as error:
                    # It came when the work was done: the result is not lost.
                    if not results:
                        raise
                    self.overdue = error
                if is_last:
                    self._raise_overdue()
                return results.pop()
            finally:
                self._is_waiting = False
                if not self._is_kept:
                    self._renew_loop()

    def next(self, items: _Items[_Result]) -> _Result:
        """Await the next item, as long as ``timeout`` says. Raises ``StopIteration`` behind the last one, and after
        ``close``.

        A signal handler may call ``close`` at any moment, also between a caller's look at ``is_closed`` and this. If
        its exception comes up behind the wait, the next call returns the item: Python runs handlers at calls, and
        there is none between the last look at ``fetched`` and the return.
        """
        while True:
            if self.fetched is None or self.fetched[0] is not items:
                try:
                    self.run(lambda: self._fetch(items), deadline=self._deadline)
                except StopAsyncIteration:
                    raise StopIteration from None
                except RuntimeError:
                    if self._is_closed:
                        raise StopIteration from None
                    raise
            fetched, self.fetched = self.fetched, None
            # None: another thread has taken it.
            if fetched is not None:
                item: _Result = fetched[1]
                return item

    async def _fetch(self, items: _Items[Any]) -> None:
        # Another thread may not have taken its item yet.
        if self.fetched is None or self.fetched[0] is not items:
            self.fetched = items, await items.__anext__()

    def _wait(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if is_loop_running() and self._helper is None:
            # If it is refused, there is no loop yet that nobody could end.
            self._helper = HelperThread()
        # Made here: the helper thread must not make another one meanwhile.
        loop = self._runner.get_loop()
        if self._is_torn:
            self._pass_stop(loop)
        # Begun where signals are held: who raises before that would leave a coroutine that was never awaited.
        work: Coroutine[Any, Any, None] | None = None
        # Ctrl-C, too: asyncio.Runner has a handler of its own, which counts the first one away if it comes early.
        held = HeldSignals(lambda: loop.call_soon_threadsafe(lambda: self._cancel(work)))
        try:
            try:
                held.hold()
                work = begin()
                if is_loop_running():
                    self._wait_for_helper(work)
                else:
                    self._runner.run(work)
            except BaseException:
                self._abandon(work, loop)
                raise
            finally:
                held.release()
        except BaseException:
            if held.is_broken_off:
                self._abandon(work, loop)
            if work is not None:
                work.close()
            if held.error is not None:
                raise held.error from None
            raise
        finally:
            self._is_torn = self._is_torn or held.is_broken_off
        self.overdue = held.error

    def _abandon(self, work: Coroutine[Any, Any, None] | None, loop: asyncio.AbstractEventLoop) -> None:
        """The wait was broken off, and its task may be there still: two would read from one connection."""
        for task in self._cancel(work):
            loop.run_until_complete(asyncio.wait((task,)))
        self._pass_stop(loop)

    def _pass_stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """A wait that was broken off when it was done has left its end in the loop: it would stop the next wait."""
        if not is_loop_running():
            loop.call_soon(loop.stop)
            loop.run_forever()

    def call(self, work: Callable[[], _Result]) -> _Result:
        """Call a function that awaits nothing, where ``run`` would do.

        An exception of a signal handler, that of Ctrl-C too, is raised when the function has returned.
        """
        with self._usable():
            self._raise_overdue()
            held = HeldSignals(lambda: None)
            self._is_waiting = True
            try:
                held.hold()
                result = work()
            finally:
                self._is_waiting = False
                held.release()
                self._is_torn = self._is_torn or held.is_broken_off
        if held.error is not None:
            raise held.error
        return result

    @contextlib.contextmanager
    def _usable(self, *, is_last: bool = False) -> Iterator[None]:
        """Hold the lock. Raises ``RuntimeError`` after ``close``, in a forked process, and if events may be lost."""
        if self.is_foreign:
            raise RuntimeError("the stream was opened in another process: connect a new one after the fork")
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the stream is closed: connect a new stream with start=stream.checkpoint")
            if self._is_torn and not is_last:
                raise RuntimeError(
                    "a second Ctrl-C broke off the reading, and events may be lost: connect a new stream with "
                    "start=stream.checkpoint"
                )
            yield

    def _raise_overdue(self) -> None:
        error, self.overdue = self.overdue, None
        if error is not None:
            raise error

    def _wait_for_helper(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task()
        assert self._helper is not None
        future = self._helper.submit(lambda: self._runner.run(work))
        try:
            while not wait((future,), _LOOK).done:
                if task is not None and self._is_cancelled(task):
                    raise asyncio.CancelledError
        except BaseException:
            self._runner.get_loop().call_soon_threadsafe(self._cancel, work)
            wait((future,))
            raise
        future.result()

    def _is_cancelled(self, task: asyncio.Task[Any]) -> bool:
        """Whether the task was cancelled and has not noticed, also before this wait; True once for each time.

        It notices where it awaits, which it does not do here. A task that has noticed may close the stream.
        """
        if not getattr(task, "_must_cancel", True) or (task, task.cancelling()) == self._noticed:
            return False
        self._noticed = (task, task.cancelling())
        return True

    def interrupt(self, request: Callable[[], object]) -> bool:
        """Call ``request`` in the loop if another thread, or this one below a signal handler, waits in ``run``.

        Returns whether that is so. If not, the caller may use ``run``.
        """
        if self._lock.acquire(blocking=False):
            try:
                # The loop itself may not have begun yet: then it begins with the request.
                if not self._is_waiting:
                    return False
            finally:
                self._lock.release()
        # The loop may have ended meanwhile: then there is nobody to interrupt.
        with contextlib.suppress(RuntimeError):
            self._runner.get_loop().call_soon_threadsafe(request)
        return True

    def _cancel(self, work: Coroutine[Any, Any, None] | None) -> list[asyncio.Task[None]]:
        """Cancel the task that awaits ``work``, and return it; the stream's other tasks go on."""
        tasks = [task for task in asyncio.all_tasks(self._runner.get_loop()) if task.get_coro() is work]
        for task in tasks:
            task.cancel()
        return tasks

    @property
    def is_foreign(self) -> bool:
        """Whether the loop belongs to a parent process, which has the same connections and the same epoll."""
        return self._is_kept and os.getpid() != self._process

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    def call_alone(self, work: Callable[[], object]) -> None:
        """Call ``work``, unless another thread is in ``run``."""
        if self._lock.acquire(blocking=False):
            try:
                work()
            finally:
                self._lock.release()

    def wait_for_others(self) -> bool:
        """Wait until no other thread is in ``run``. Returns False below a call of ``run`` in this thread."""
        with self._lock:
            return not self._is_waiting

    def close(self) -> None:
        """Close the loop; nothing can be awaited afterwards. Not for a forked process."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                _undisturbed(self._end_loop)

    def let_go(self) -> None:
        """Close the loop; ``run`` makes another one, which is not kept."""
        with self._lock:
            if not self._is_closed:
                self._is_kept = False
                _undisturbed(self._renew_loop)

    def _end_loop(self) -> None:
        if self._selector is not None and is_loop_running():
            self._helper = self._helper or HelperThread()
            self._helper.submit(self._runner.close).result()
        else:
            self._runner.close()
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    def _renew_loop(self) -> None:
        self._end_loop()
        self._runner = self._new_runner()

    def _new_runner(self) -> asyncio.Runner:
        self._selector = None
        # With a factory of its own it leaves the thread's current event loop alone.
        return asyncio.Runner(loop_factory=self._new_loop)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        self._selector = DefaultSelector()
        return asyncio.SelectorEventLoop(self._selector)


def _undisturbed(work: Callable[[], None]) -> None:
    """Call a function; an exception of a signal handler is raised when it has returned."""
    held = HeldSignals(lambda: None)
    try:
        held.hold()
        work()
    finally:
        held.release()
    if held.error is not None:
        raise held.error


async def _collect(
    work: Callable[[], Coroutine[Any, Any, _Result]], results: list[_Result], deadline: float | None
) -> None:
    """Await ``work()``; the task itself has no result.

    A handler of signals may know the task, and ``signal.signal`` looks each handler up in an enum, which makes the
    repr of what it does not find: with asyncio.Runner's handler of Ctrl-C that of the task with its result, an event
    of a table of 100 columns. It took 40 % of the time of such a log.
    """
    if deadline is None:
        results.append(await work())
        return
    async with asyncio.timeout(deadline - monotonic()):
        results.append(await work())
