"""A check of Spark's file sink, which loses rows silently when a checkpoint belongs to other files.

The sink numbers micro-batches as the checkpoint does, and takes a known number for a batch that is run again. With a
new checkpoint it would skip as many batches as the folder has. With an old checkpoint and a new folder, earlier rows
would be missing.
"""

from collections.abc import Mapping
from typing import Final

from pyarrow.fs import FileSelector, LocalFileSystem

from protocol.errors import CheckpointError

from ...spool.storage import NO_STORAGE, file_system
from .spark_session import State, local_path

#: The folder of the sink's commits, within the target.
SINK_LOG: Final = "_spark_metadata"


def check_file_sink(target: str, state: State, storage: Mapping[str, str] = NO_STORAGE) -> None:
    """Raises ``CheckpointError`` unless the files in ``target`` were written by the query with this ``state``."""
    written = _last_batch(f"{target}/{SINK_LOG}", storage)
    committed = _last_batch(f"{state.checkpoint}/commits", storage)
    # If a query was killed between writing and committing, the sink is one ahead.
    if written not in (committed, committed + 1):
        raise CheckpointError(
            f"{target} has the micro-batches up to {written}, but the state in {state.checkpoint} belongs to a query "
            f"that has committed those up to {committed} -- give the state of these files, or delete both to begin "
            "anew"
        )


def _last_batch(folder: str, storage: Mapping[str, str]) -> int:
    """The number of the last micro-batch in a metadata log of Spark; -1 if none."""
    local = local_path(folder)
    system, path = file_system(folder, storage) if local is None else (LocalFileSystem(), local)
    found = system.get_file_info(FileSelector(path, allow_not_found=True))
    numbers = [info.base_name.removesuffix(".compact") for info in found]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)
