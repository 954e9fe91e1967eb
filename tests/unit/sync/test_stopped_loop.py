"""An exception that comes up within the event loop, and not in what it runs, does not stop the next wait.

``gevent.Timeout`` and ``GreenletExit`` come up where the loop selects, and a second Ctrl-C anywhere.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest

import replica.sync
from replica.demo import DemoSource
from replica.stream.delivery import Delivery, Request
from replica.sync.loop_driver import LoopDriver


class RaisedError(BaseException):
    """As gevent.Timeout."""


@pytest.fixture
def at_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_result_that_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of that wait was still noted in the loop: "Event loop stopped before Future completed"."""
    driver = LoopDriver()
    driver.keep(lambda: None)
    is_done = False

    async def work() -> int:
        nonlocal is_done
        await asyncio.sleep(0)
        is_done = True
        return 7

    assert driver.run(work) == 7
    assert driver._selector is not None
    select, is_done = driver._selector.select, False

    def interrupted(timeout: float | None = None) -> object:
        if is_done:
            monkeypatch.undo()
            raise RaisedError
        return select(timeout)

    monkeypatch.setattr(driver._selector, "select", interrupted)
    assert driver.run(work) == 7
    with pytest.raises(RaisedError):
        driver.run(work)
    assert driver.run(work) == 7
    driver.close()


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_second_ctrl_c_in_the_decoder(
    monkeypatch: pytest.MonkeyPatch, at_ctrl_c: None, is_awaited: bool
) -> None:
    """The stream went on behind the events that were being decoded."""
    advance: Callable[[Delivery], Request] = Delivery.advance

    def interrupted(self: Delivery) -> Request:
        request = advance(self)
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return request

    def hook(status: replica.StreamStatus) -> None:
        """With one the stream always runs in its event loop."""

    with DemoSource(tls=False) as source:
        on_status = hook if is_awaited else None
        with replica.sync.connect(source.dsn, start="earliest", on_status=on_status) as stream:
            monkeypatch.setattr(Delivery, "advance", interrupted)
            with pytest.raises(KeyboardInterrupt):
                for _ in stream:
                    pass
            for _ in range(2):
                with pytest.raises(RuntimeError, match=r"second Ctrl-C .* connect a new stream"):
                    next(stream)
