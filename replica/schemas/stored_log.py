"""Whether the history in a store is of the log that the source has now: a reset gives places of the old log anew.

A store that was restored from a backup, beside a newer checkpoint, may be from before RESET or of a server that was
itself restored. Its shapes then stand at places of the new log, and rows get the names of other columns. The time at
which the source began a file tells, as for checkpoints (``same_log``).
"""

from protocol.errors import BinlogNotFoundError, CheckpointError, ReplicaError
from protocol.position import Checkpoint, is_older

from ..config.options import Options
from ..config.schema_store import SchemaStore
from ..source.log_scan import LogScan
from ..source.server_facts import Identity, Source
from .timeline import SchemaHistory


def name_of(identity: Identity) -> str:
    """The name of a server in a history: its server_uuid, or its server_id."""
    uuid, server_id = identity
    return uuid or str(server_id)


def identity_of(known: Source | Checkpoint) -> str:
    """The same of a source, or of the server that a checkpoint is of."""
    return name_of((known.server_uuid, known.server_id))


async def check_stored_log(
    store: SchemaStore | None,
    history: SchemaHistory | None,
    stored: Checkpoint | None,
    options: Options,
    source: Source,
) -> None:
    """Raise ``CheckpointError`` if the source, whose history it is, began the history's file at another time.

    ``stored`` is the checkpoint that the stream begins at. Nothing is checked if the file was purged.
    """
    if history is None or history.begun is None or source.is_galera:
        return
    if stored is not None and history.source not in (stored.server_uuid, str(stored.server_id)):
        stored = None
    file, begun = history.begun
    now: int | None = None
    if stored is not None and stored.file == file and stored.file_begun:
        now = stored.file_begun
    else:
        try:
            now = await LogScan(options, source).created(file)
        except BinlogNotFoundError:
            # The log has not come so far, or the file was purged.
            if stored is None or not stored.file or not is_older(stored.file, file):
                return
        except ReplicaError:
            return
    if now != begun and not await _is_reset(stored, options, source):
        raise CheckpointError(
            f"{store!r} is of a log that was reset (RESET MASTER, RESET BINARY LOGS AND GTIDS) or restored since: "
            f"the source began {file} at another time; give the store that belongs to the checkpoint, or remove it: "
            "the tables are then read anew"
        )


async def _is_reset(stored: Checkpoint | None, options: Options, source: Source) -> bool:
    """Whether the checkpoint is of the log before the reset, too. Then the stream reports it, and says what to do."""
    if stored is None or not stored.file or not stored.file_begun:
        return False
    try:
        return await LogScan(options, source).created(stored.file) != stored.file_begun
    except ReplicaError:
        return True
