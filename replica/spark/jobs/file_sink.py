"""Spark's file sink, and the two ways in which it loses rows in silence: state and files that are not of each other.

It numbers micro-batches as the checkpoint does, and takes a number that it has for a batch that is run again. With
a new checkpoint it would pass over as many batches as the folder has; with an old one and a new folder, rows before
would be missing. Folders of this machine are looked into; of others nothing is known here.
"""

import os
from typing import Final

from protocol.errors import CheckpointError

from .spark_session import State, local_path

_SINK_LOG: Final = "_spark_metadata"


def check_file_sink(target: str, state: State) -> None:
    """Raises ``CheckpointError`` unless the files in ``target`` are those of the query that ``state`` is of."""
    folder, checkpoint = local_path(target), local_path(state.checkpoint)
    if folder is None or checkpoint is None:
        return
    written = _last_batch(f"{folder}/{_SINK_LOG}")
    committed = _last_batch(f"{checkpoint}/commits")
    # Killed between the two, it is one ahead.
    if written not in (committed, committed + 1):
        raise CheckpointError(
            f"{target}: it has the micro-batches up to {written}, and the state in {state.checkpoint} is that of a "
            f"query which has done {committed} -- give the state of these files, or delete both to begin anew"
        )


def _last_batch(folder: str) -> int:
    """The last one that a log of Spark's has; -1 if none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    numbers = [name.removesuffix(".compact") for name in names]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)
