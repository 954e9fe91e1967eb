"""The versions of Delta tables that a state knows: a table that was taken back to an older one lacks rows since.

The rows between would never come again, as the state says that they are merged. Versions that others add are no loss.

After a power failure the file of a commit may be empty. Delta passes over such a version, so a table goes on without
its rows. If the state does not know the version, its rows come again.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from deltalake import DeltaTable

from protocol.errors import CheckpointError

from .job_state import JobState, TableState
from .kept_table import KeptTable
from .spark_session import local_path
from .target import Target
from .unreadable import told

# To open a table is to wait for an object store.
_THREADS: Final = 4


def note_versions(state: JobState, tables: Iterable[KeptTable]) -> None:
    """Note the versions of these tables in a state that is about to be saved."""
    for table in tables:
        if (known := state.tables.get(table.name)) is not None:
            known.version = _version(table)


def lost_rows(table: KeptTable, known: TableState) -> CheckpointError | None:
    """The error that a table is older than its state; None if it is not."""
    empty = None if table.table is None else empty_commit(table.path)
    if empty is not None and empty <= known.version:
        return CheckpointError(
            f"{table.name}: the table in {table.path} has lost the rows of version {empty}, as the file of its "
            "commit is empty (a power failure may leave it so)"
        )
    if empty is not None:
        forget_empty(table)
    if known.version < 0:
        return None
    found = _version(table) if table.table is None else shown_version(table.open(), known.version)
    if found >= known.version:
        return None
    what = "is gone" if table.table is None else f"has the rows of version {found}"
    return CheckpointError(
        f"{table.name}: the table in {table.path} {what}, an older copy than its job's state, which has written "
        f"version {known.version}: the rows since are lost here"
    )


def empty_commit(path: str) -> int | None:
    """The first version since the last checkpoint of a table's log whose commit is an empty file; None without one.

    An object store has whole objects only.
    """
    local = local_path(path)
    if local is None or not os.path.isdir(log := f"{local}/_delta_log"):
        return None
    # Names begin with 20 digits. A log may keep 30 days of commits, and each merge looks: so names alone tell which
    # files are behind the checkpoint.
    names = [name for name in os.listdir(log) if name[:20].isdecimal()]
    checkpoints = sorted((name for name in names if name[20:].startswith(".checkpoint.")), reverse=True)
    begin = next((name[:20] for name in checkpoints if os.path.getsize(f"{log}/{name}")), "")
    later = (name for name in names if name[20:] == ".json" and name[:20] > begin)
    return min((int(name[:20]) for name in later if not os.path.getsize(f"{log}/{name}")), default=None)


def forget_empty(table: KeptTable) -> None:
    """Begin the log of a table anew, by a checkpoint, if it has an empty commit whose rows are not lacking."""
    if table.table is not None and empty_commit(table.path) is not None:
        with told(table.path, "let this user write the folder, and make room if the disk is full"):
            table.open().create_checkpoint()


def older_tables(target: Target, state: JobState) -> Iterator[tuple[str, CheckpointError]]:
    """The kept tables that are older than the state, each with its error; the versions of others are noted."""
    names = [name for name in state.tables if name not in state.parked and name not in state.holds]
    with ThreadPoolExecutor(_THREADS) as pool:
        for name, error in zip(names, pool.map(partial(_opened, target, state), names), strict=True):
            if error is not None:
                yield name, error


def _opened(target: Target, state: JobState, name: str) -> CheckpointError | None:
    table, known = target.table(name), state.tables[name]
    error = lost_rows(table, known)
    if error is None:
        known.version = _version(table)
    return error


def _version(table: KeptTable) -> int:
    return -1 if table.table is None else table.table.version()


def shown_version(table: DeltaTable, least: int) -> int:
    """The version whose rows a table shows, if that is older than ``least``; else ``least``.

    A RESTORE is a new version with the rows of an older one; -1 if it was made to a time.
    """
    shown = table.version()
    if shown <= least:
        return shown
    commits = {int(entry["version"]): entry for entry in table.history(shown - least)}
    while shown > least:
        entry = commits.get(shown, {})
        is_restored = entry.get("operation") == "RESTORE"
        shown = int(entry["operationParameters"].get("version", -1)) if is_restored else shown - 1
    return shown
