"""Table maps of binlog files, which the driver looks at before tasks read the files."""

import contextlib
from collections.abc import Sequence
from typing import Final

from protocol.binlog.events import TableMapEvent
from protocol.errors import ConfigurationError, ReplicaError
from protocol.rows.table import Table, table_text

from ..config.table_filter import TableFilter
from ..files.binlog_file import BinlogFile, KeyFile, open_binlog
from ..files.log_files import LogFile
from ..spool.storage import is_uri, open_input
from .source_options import SourceOptions

# Files up to this size in all are searched for the selected tables, which takes a second or two of processor time.
_SEARCHED_BYTES: Final = 256 << 20


def first_table(options: SourceOptions, files: Sequence[LogFile]) -> Table:
    """The table of table mode as the first table map in the files describes it."""
    with _open(options, files) as log:
        for event in log:
            assert isinstance(event, TableMapEvent)
            if table_text(event.table.schema, event.table.name) == options.table:
                return event.table
    raise ConfigurationError(
        f"table: the log has no rows of {options.table}, so its columns are not known: give them with .schema(...)"
    )


def warn_of_unmatched(options: SourceOptions, files: Sequence[LogFile]) -> None:
    """Log a warning for each pattern of tables that matches no table of the files.

    This reads the files to their end. Large files, and files in an object store, are not searched.
    """
    patterns = options.settings.tables
    sizes = [file.size for file in files]
    if "*" in patterns or None in sizes or sum(size or 0 for size in sizes) > _SEARCHED_BYTES:
        return
    wants = TableFilter(patterns)
    # Tasks report damaged or missing files.
    with contextlib.suppress(ReplicaError, OSError), _open(options, files) as log:
        for event in log:
            assert isinstance(event, TableMapEvent)
            if wants(event.table.schema, event.table.name) and not wants.seen.unmatched:
                return


def _open(options: SourceOptions, files: Sequence[LogFile]) -> BinlogFile:
    settings = options.settings
    paths = [
        open_input(file.path, settings.storage) if is_uri(file.path) else file.path
        for file in files
        if file.path is not None
    ]
    key_file = settings.key_file and KeyFile(
        settings.key_file, settings.key_file_secret, settings.key_file_iterations
    )
    return open_binlog(
        paths,
        tables=settings.tables,
        events=TableMapEvent,
        max_event_bytes=settings.max_event_bytes,
        keyring=settings.keyring,
        key_file=key_file or None,
    )
