"""Checkpoints whose texts have many lengths, so that a mix of two would show, and a store in memory."""

from __future__ import annotations

from protocol.position import Checkpoint

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def checkpoint(number: int) -> Checkpoint:
    """GTID sets of many lengths, so that a mix of two checkpoints would show."""
    return Checkpoint("binlog.000003", number, f"{UUID}:1-{10 ** (number % 17) + number}", UUID, 97)


FIRST, SECOND = checkpoint(1), checkpoint(2)


class MemoryStore:
    """A store that outlives no process."""

    def __init__(self) -> None:
        self.checkpoint: Checkpoint | None = None

    def load(self) -> Checkpoint | None:
        return self.checkpoint

    def save(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
