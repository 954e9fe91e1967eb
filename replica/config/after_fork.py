"""Makes a forked process forget its parent's locks, connections and descriptors of event loops.

A child's copy of a socket keeps the connection open after the parent has closed it: as long as a worker process
lived, the source went on sending its log, which nobody read. A copy of an epoll descriptor is the same epoll: a child
that ended removed the parent's sockets from it, and the parent's stream waited for ever.
"""

import contextlib
import os
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Forgetting(Protocol):
    """Something of this process alone."""

    def forget(self) -> None:
        """In a forked process, right after the fork: let go of what is the parent's."""


def forget_in_children(owner: Forgetting) -> None:
    """From now on call ``owner.forget()`` in each process that is forked from this one."""
    _owners().add(owner)


def cut_off(descriptor: int) -> None:
    """Let a descriptor of a forked process lead nowhere. Its number stays taken: who has it will close it."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(nowhere, descriptor, inheritable=False)
        finally:
            os.close(nowhere)


@cache
def _owners() -> WeakSet[Forgetting]:
    owners = WeakSet[Forgetting]()

    def forget() -> None:
        for owner in owners:
            owner.forget()

    os.register_at_fork(after_in_child=forget)
    return owners
