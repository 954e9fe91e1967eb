"""Checks of Spark's file sink, which loses rows silently when a checkpoint belongs to other files.

It also loses rows when only the driver sees the target: then each executor writes to its own disk.

The sink numbers micro-batches as the checkpoint does, and skips a number that it knows as a batch that is run again.
With a new checkpoint it would skip as many batches as the folder has. With an old checkpoint and a new folder,
earlier rows would be missing.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector

import replica.spark
from protocol.errors import CheckpointError, ConfigurationError

from ...spool.storage import NO_STORAGE, system_of
from .checkpoints import REMEDY, check_logs, check_metadata, check_place, keeps_checksums, last_number
from .spark_session import State, is_connect, local_path
from .target_kind import SINK_LOG, has_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The end of the name of a list of all files so far.
_COMPACT: Final = ".compact"


def check_file_sink(target: str, state: State, storage: Mapping[str, str] = NO_STORAGE) -> None:
    """Raises ``CheckpointError`` unless the files in ``target`` were written by the query with this ``state``.

    Raises ``ConfigurationError`` for files written without a query: Spark would not read them beside a query's files.
    """
    written = last_number(f"{target}/{SINK_LOG}", storage)
    check_place(state.checkpoint, target, written, storage)
    check_metadata(state.checkpoint, storage)
    remedy = partial(_going_back, target, state.checkpoint, storage)
    check_logs(state.checkpoint, storage, remedy)
    _check_lists(target, storage, remedy)
    has_begun = last_number(f"{state.checkpoint}/offsets", storage) >= 0
    if written < 0 and not has_begun and has_partitions(target, storage):
        raise ConfigurationError(
            f"target: {target} has files that no stream has written, which readers would no longer see beside those "
            "of one -- give another folder"
        )


def _check_lists(target: str, storage: Mapping[str, str], remedy: Callable[[str, int], str]) -> None:
    """Raises ``CheckpointError`` if a list of a micro-batch's files is empty: the sink takes it for written."""
    found = _files(f"{target}/{SINK_LOG}", storage)
    # A list of all files so far stands for those before it.
    begin = max((number for number, info in found if info.base_name.endswith(_COMPACT)), default=0)
    for number, info in found:
        if number >= begin and not info.size:
            raise CheckpointError(
                f"{target}/{SINK_LOG}/{info.base_name}: the file is empty (a power failure may leave it so) -- "
                f"{remedy(SINK_LOG, number)}"
            )


def _going_back(target: str, checkpoint: str, storage: Mapping[str, str], log: str, number: int) -> str:
    """The files to delete, so that a micro-batch and all later ones are run again.

    Without their lists no reader sees what they wrote. The first one keeps its offsets, unless these are damaged.
    """
    if (log, number) == ("offsets", 0):
        # It says where the log is read from.
        return REMEDY
    first_offsets = number + (log != "offsets")
    firsts = {
        f"{checkpoint}/offsets": first_offsets,
        f"{checkpoint}/commits": number,
        f"{target}/{SINK_LOG}": number,
    }
    files = [
        f"{folder}/{info.base_name}"
        for folder, first in firsts.items()
        for found, info in _files(folder, storage)
        if found >= first
    ]
    checksums = ", each with its .crc file beside it" if keeps_checksums(target) else ""
    said = f"the micro-batches from {number} on are run again, if the source still has their log"
    return f"delete {', '.join(files)}{checksums}: {said}"


def _files(folder: str, storage: Mapping[str, str]) -> list[tuple[int, FileInfo]]:
    """The files of a metadata log of Spark, by the number of the micro-batch."""
    system, path = system_of(local_path(folder) or folder, storage)
    found = [
        (info.base_name.removesuffix(_COMPACT), info)
        for info in system.get_file_info(FileSelector(path, allow_not_found=True))
    ]
    return sorted(((int(number), info) for number, info in found if number.isdecimal()), key=itemgetter(0))


def check_shared(spark: "SparkSession", target: str) -> None:
    """Raises ``ConfigurationError`` if tasks do not see a file that the driver writes in the target or beside it."""
    folder = local_path(target)
    if folder is None or replica.spark.is_local(spark) or is_connect(spark):
        return
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    made = list(_made(folder))
    probe = os.path.join(folder, f".mysql-replica-{uuid.uuid4().hex}")
    try:
        with open(probe, "x"):
            is_seen = _all_see(spark, probe)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(probe)
        for one in made:
            with contextlib.suppress(OSError):
                os.rmdir(one)
    if not is_seen:
        raise ConfigurationError(
            f"target: executors do not see {target} of the driver -- give a folder that all machines see, such as "
            "s3://bucket/changes or one on a shared disk"
        )


def _made(folder: str) -> Iterator[str]:
    """Make a folder and its parents; returns the new folders, the innermost first."""
    if not os.path.isdir(folder):
        above = list(_made(os.path.dirname(folder)))
        os.mkdir(folder)
        yield folder
        yield from above


def _all_see(spark: "SparkSession", path: str) -> bool:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([os.path.exists(path)])], names=["is_seen"])

    # Enough tasks for each executor to get some.
    count = max(2, 2 * spark.sparkContext.defaultParallelism)
    rows = spark.range(0, count, 1, count).mapInArrow(look, "is_seen BOOLEAN").collect()
    return all(row["is_seen"] for row in rows)
