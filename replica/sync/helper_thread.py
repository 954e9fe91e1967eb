"""``HelperThread``: runs the event loop of a stream where the loop of the calling thread is running.

It is a daemon thread. The interpreter waits for those of ``ThreadPoolExecutor`` when it ends: a program with a stream
in a daemon thread of its own, below ``asyncio.run``, never ended.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

_Result = TypeVar("_Result")


class HelperThread:
    """One thread, which does what it is given, in order. Raises ``RuntimeError`` if it is no thread of its own."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="replica-sync", daemon=True)
        self._thread.start()
        try:
            self.submit(_check_thread).result()
        except BaseException:
            self.end()
            raise

    def submit(self, work: Callable[[], _Result]) -> Future[_Result]:
        """Call ``work`` in the thread."""
        future: Future[_Result] = Future()

        def task() -> None:
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._tasks.put(task)
        return future

    def end(self) -> None:
        """End the thread behind what it was given."""
        self.leave()
        self._thread.join()

    def leave(self) -> None:
        """The same, without waiting for it."""
        self._tasks.put(None)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            # It holds the stream, which may be dropped while this waits for another one.
            del task


def is_loop_running() -> bool:
    """Whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _check_thread() -> None:
    if is_loop_running():
        raise RuntimeError(
            "threads are greenlets here, and another stream or event loop runs in this one: read each stream in a "
            "real thread, such as those of gevent.get_hub().threadpool or eventlet.tpool"
        )
