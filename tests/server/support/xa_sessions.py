"""Two sessions of a server, each with an XA transaction that a test takes step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.support.servers import Server

#: Runs steps of the transaction: ``"START"``, ``"END"``, ``"PREPARE"``, ``"COMMIT"``, or a statement.
Steps = Callable[..., None]


@contextlib.contextmanager
def two_xa(server: Server, schema: str) -> Iterator[tuple[Steps, Steps]]:
    """The steps of two transactions, whose ids have the schema's name: prepared ones outlive their sessions."""
    with server.connect() as first, server.connect() as second:
        yield partial(_do, first, f"{schema}first"), partial(_do, second, f"{schema}second")


def _do(session: Any, xid: str, *steps: str) -> None:
    with session.cursor() as cursor:
        for step in steps:
            cursor.execute(step if " " in step else f"XA {step} '{xid}'")
