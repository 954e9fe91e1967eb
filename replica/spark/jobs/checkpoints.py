"""Reads Spark's checkpoint of a streaming query: where its micro-batches end, and which ones a target may have.

checkpoint/metadata     the id of the query
checkpoint/offsets/N    written before micro-batch N runs: its last line is the offset at which it ends
checkpoint/commits/N    written when it is done
checkpoint/appended     the last micro-batch with rows: a Delta table has no commits of others (``delta_append``)

A target skips a micro-batch whose number it has. With an older copy of the checkpoint, the same numbers would stand
for other ranges of the log, and their rows would be lost. ``check_place`` refuses such a copy before a query begins.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyarrow.fs import FileSelector, FileSystem, FileType

from protocol.errors import CheckpointError, ConfigurationError

from ...spool.offsets import Offset
from ...spool.storage import system_of, write_whole
from .spark_session import is_connect, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_APPENDED: Final = "appended"
#: What helps against a file that nothing else can replace.
REMEDY: Final = (
    "the file is damaged: restore the checkpoint and the target from one backup, or delete both to begin anew"
)
_QUERY_ID: Final = "sql.streaming.queryId"


def last_batch(checkpoint: str, storage: Mapping[str, str]) -> int | None:
    """The number of the last micro-batch that is done; None if there is none."""
    number = last_number(f"{checkpoint}/commits", storage)
    return None if number < 0 else number


def last_number(folder: str, storage: Mapping[str, str]) -> int:
    """The number of the last micro-batch in a metadata log of Spark; -1 if there is none."""
    system, path = _folder(folder, storage)
    found = system.get_file_info(FileSelector(path, allow_not_found=True))
    numbers = [info.base_name.removesuffix(".compact") for info in found]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def query_id(frame: "DataFrame", checkpoint: str, storage: Mapping[str, str]) -> str:
    """The id of the streaming query whose micro-batch ``foreachBatch`` got.

    With Spark Connect it is read from the query's checkpoint. Raises ``CheckpointError`` if that cannot be read.
    """
    session = frame.sparkSession
    if not is_connect(session):
        found = session.sparkContext.getLocalProperty(_QUERY_ID)
        assert found is not None
        return str(found)
    return query_of(checkpoint, storage)


def query_of(checkpoint: str, storage: Mapping[str, str]) -> str:
    """The id of the query. Raises ``CheckpointError`` if it has not begun, or cannot be read here."""
    try:
        system, root = _folder(checkpoint, storage)
        with system.open_input_stream(f"{root}/metadata") as file:
            return str(json.loads(file.read())["id"])
    except (ConfigurationError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{checkpoint}/metadata: {error}") from error


def check_query(
    checkpoint: str,
    target: str,
    written: Callable[[str], int | None],
    storage: Mapping[str, str],
    **more: bool,
) -> None:
    """``check_place``, if the target has micro-batches of the checkpoint's query."""
    query = check_metadata(checkpoint, storage)
    if query is not None and (number := written(query)) is not None:
        check_place(checkpoint, target, number, storage, **more)
        check_logs(checkpoint, storage)


def check_metadata(checkpoint: str, storage: Mapping[str, str]) -> str | None:
    """The id of the query; None if it has not begun, or cannot be read here. ``CheckpointError`` if it is damaged."""
    try:
        return query_of(checkpoint, storage)
    except CheckpointError as error:
        if isinstance(error.__cause__, json.JSONDecodeError | KeyError):
            raise CheckpointError(f"{error} -- {REMEDY}") from error
        return None


def check_logs(
    checkpoint: str, storage: Mapping[str, str], remedy: Callable[[str, int], str] | None = None
) -> None:
    """Raises ``CheckpointError`` if a file is damaged with which Spark goes on: its own error has no remedy.

    ``remedy``: what helps against the damaged file of a log and a micro-batch, if the target lets more be done.
    """
    begun, done = (last_number(f"{checkpoint}/{log}", storage) for log in ("offsets", "commits"))
    checks = [("offsets", number, end_of) for number in (begun - 1, begun)] + [("commits", done, _commit_at)]
    for log, number, read in checks:
        try:
            if number >= 0:
                read(checkpoint, number, storage)
        except FileNotFoundError:
            # Spark deletes old ones.
            continue
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            helps = _remedy(checkpoint, log, number) if remedy is None else remedy(log, number)
            raise CheckpointError(f"{checkpoint}/{log}/{number}: {error} -- {helps}") from error


def has_query(checkpoint: str, storage: Mapping[str, str]) -> bool:
    """Whether the checkpoint has a query; True also if this process cannot read the checkpoint."""
    try:
        system, root = _folder(checkpoint, storage)
        return bool(system.get_file_info(f"{root}/metadata").type != FileType.NotFound)
    except (ConfigurationError, OSError):
        return True


def check_place(
    checkpoint: str, target: str, written: int, storage: Mapping[str, str], *, skips_empty: bool = False
) -> None:
    """Raises ``CheckpointError`` unless a target with the micro-batches up to ``written`` fits the checkpoint.

    If a query was killed between writing and committing, the target is one ahead. ``skips_empty``: the target may
    lack the last micro-batches if they had no rows (``note_append``).
    """
    begun, done = (last_number(f"{checkpoint}/{log}", storage) for log in ("offsets", "commits"))
    least = _appended(checkpoint, storage) if skips_empty else done
    if least <= written <= min(begun, done + 1):
        return
    raise CheckpointError(
        f"{target} has the micro-batches up to {written}, but the state in {checkpoint} belongs to a query that has "
        f"committed those up to {done}, or one of the two is an older copy -- give the state of this target as it is "
        "now, or delete both to begin anew"
    )


def note_append(checkpoint: str, batch: int, storage: Mapping[str, str]) -> None:
    """Note in the checkpoint that this micro-batch is the last one with rows; the target may lack later ones."""
    # A checkpoint that this process cannot write gets no note.
    with contextlib.suppress(ConfigurationError, OSError):
        system, root = _folder(checkpoint, storage)
        write_whole(system, f"{root}/{_APPENDED}", lambda file: file.write(str(batch).encode()))


def _appended(checkpoint: str, storage: Mapping[str, str]) -> int:
    system, root = _folder(checkpoint, storage)
    try:
        with system.open_input_stream(f"{root}/{_APPENDED}") as file:
            return int(file.read())
    except FileNotFoundError:
        return -1
    except ValueError as error:
        raise CheckpointError(f"{checkpoint}/{_APPENDED}: {error} -- {REMEDY}") from error


def end_of(checkpoint: str, batch: int, storage: Mapping[str, str]) -> Offset:
    """The offset at which a micro-batch ends. Raises ``OSError`` if there is no such micro-batch."""
    system, root = _folder(checkpoint, storage)
    with system.open_input_stream(f"{root}/offsets/{batch}") as file:
        return Offset.from_dict(json.loads(file.read().decode().rstrip().rpartition("\n")[2]))


def _commit_at(checkpoint: str, batch: int, storage: Mapping[str, str]) -> None:
    system, root = _folder(checkpoint, storage)
    with system.open_input_stream(f"{root}/commits/{batch}") as file:
        version, _, said = file.read().decode().partition("\n")
    if not version.startswith("v"):
        raise ValueError("it has no version")
    json.loads(said)


def _remedy(checkpoint: str, log: str, number: int) -> str:
    if log == "offsets":
        return REMEDY
    checksum = f", and .{number}.crc beside it" if keeps_checksums(checkpoint) else ""
    return f"delete the file{checksum}: its micro-batch is run again, and the target has it once"


def keeps_checksums(place: str) -> bool:
    """Whether Hadoop keeps the checksum of each file beside it, as on disks, to be deleted with the file.

    It would be in the way of the new file's: Spark takes it for another query's.
    """
    return local_path(place) is not None


def has_begun(checkpoint: str, batch: int, storage: Mapping[str, str]) -> bool:
    """Whether there is such a micro-batch."""
    system, root = _folder(checkpoint, storage)
    return bool(system.get_file_info(f"{root}/offsets/{batch}").type == FileType.File)


def _folder(checkpoint: str, storage: Mapping[str, str]) -> tuple[FileSystem, str]:
    return system_of(local_path(checkpoint) or checkpoint, storage)
