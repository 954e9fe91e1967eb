"""A check of Spark's file sink, which loses rows silently when a checkpoint belongs to other files.

The sink numbers micro-batches as the checkpoint does, and takes a known number for a batch that is run again. With a
new checkpoint it would skip as many batches as the folder has. With an old checkpoint and a new folder, earlier rows
would be missing. Only folders of this machine are checked.
"""

import os
from typing import Final

from protocol.errors import CheckpointError

from .spark_session import State, local_path

_SINK_LOG: Final = "_spark_metadata"


def check_file_sink(target: str, state: State) -> None:
    """Raises ``CheckpointError`` unless the files in ``target`` were written by the query with this ``state``."""
    folder, checkpoint = local_path(target), local_path(state.checkpoint)
    if folder is None or checkpoint is None:
        return
    written = _last_batch(f"{folder}/{_SINK_LOG}")
    committed = _last_batch(f"{checkpoint}/commits")
    # If a query was killed between writing and committing, the sink is one ahead.
    if written not in (committed, committed + 1):
        raise CheckpointError(
            f"{target} has the micro-batches up to {written}, but the state in {state.checkpoint} belongs to a query "
            f"that has committed those up to {committed} -- give the state of these files, or delete both to begin "
            "anew"
        )


def _last_batch(folder: str) -> int:
    """The number of the last micro-batch in a metadata log of Spark; -1 if none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    numbers = [name.removesuffix(".compact") for name in names]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)
