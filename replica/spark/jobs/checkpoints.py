"""What Spark's checkpoint of a streaming query says of the log: where its micro-batches end.

checkpoint/offsets/N    written before micro-batch N runs: its last line is the offset at which it ends
checkpoint/commits/N    written when it is done
"""

import json
from collections.abc import Mapping

from pyarrow.fs import FileSelector, FileSystem, FileType

from ...spool.offsets import Offset
from ...spool.storage import system_of
from .spark_session import local_path


def last_batch(checkpoint: str, storage: Mapping[str, str]) -> int | None:
    """The number of the last micro-batch that is done; None if there is none."""
    system, root = _folder(checkpoint, storage)
    files = system.get_file_info(FileSelector(f"{root}/commits", allow_not_found=True))
    return max((int(file.base_name) for file in files if file.base_name.isdecimal()), default=None)


def end_of(checkpoint: str, batch: int, storage: Mapping[str, str]) -> Offset:
    """The offset at which a micro-batch ends. Raises ``OSError`` if there is no such micro-batch."""
    system, root = _folder(checkpoint, storage)
    with system.open_input_stream(f"{root}/offsets/{batch}") as file:
        return Offset.from_dict(json.loads(file.read().decode().rstrip().rpartition("\n")[2]))


def has_begun(checkpoint: str, batch: int, storage: Mapping[str, str]) -> bool:
    """Whether there is such a micro-batch."""
    system, root = _folder(checkpoint, storage)
    return bool(system.get_file_info(f"{root}/offsets/{batch}").type == FileType.File)


def _folder(checkpoint: str, storage: Mapping[str, str]) -> tuple[FileSystem, str]:
    return system_of(local_path(checkpoint) or checkpoint, storage)
