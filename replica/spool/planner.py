"""The planner: binlog files -> pieces of about a given size, cut between transactions, by their event headers.

``files.cuts`` finds the cuts. A file whose headers cannot be followed, such as an encrypted one, is one piece, and so
is a file of an object store. This module decodes no events.
"""

import contextlib
import itertools
import logging
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from protocol.constants import BINLOG_MAGIC, EVENT_HEADER_SIZE
from protocol.position import file_number

from ..files.cuts import HeaderWalk
from ..files.log_files import LogFile
from .pieces import LogPiece
from .storage import is_uri

_LOGGER: Final = logging.getLogger(__name__)

_PROGRESS_SECONDS: Final = 5.0


def plan_files(files: Sequence[LogFile], max_bytes: int) -> list[LogPiece]:
    """The pieces of these files in the order of the log, each of about ``max_bytes``, and of a transaction at least.

    Planning logs its progress every few seconds. A file that is still being written is planned up to its present end.
    """
    pieces: list[LogPiece] = []
    begun = shown = time.monotonic()
    planned, size = 0, sum(file.size or 0 for file in files)
    for done, (file, number) in enumerate(zip(files, file_numbers(files), strict=True), 1):
        pieces += plan_file(file, number, max_bytes)
        planned += file.size or 0
        now = time.monotonic()
        if now - shown >= _PROGRESS_SECONDS or (shown > begun and done == len(files)):
            shown = now
            _LOGGER.info(
                "planned %d of %d binlog files, %.1f of %.1f GB, in %.0f s: %d partitions",
                done,
                len(files),
                planned / 1e9,
                size / 1e9,
                now - begun,
                len(pieces),
            )
    return pieces


@contextlib.contextmanager
def shown_progress(target: TextIO) -> Iterator[None]:
    """Write the progress of ``plan_files`` to ``target`` if logging is not set up, as in Spark's Python processes."""
    if _LOGGER.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(target)
    handler.setFormatter(logging.Formatter("mysql-binlog: %(message)s"))
    level = _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)
        _LOGGER.removeHandler(handler)


def file_numbers(files: Sequence[LogFile]) -> list[int]:
    """The numbers in the names of the files if they ascend; else 1, 2, 3..."""
    numbers = [file_number(file.name) for file in files]
    if all(later > earlier for earlier, later in itertools.pairwise(numbers)):
        return numbers
    return list(range(1, len(files) + 1))


def plan_file(file: LogFile, number: int, max_bytes: int) -> Iterator[LogPiece]:
    """The pieces of one file."""
    assert file.path is not None
    if is_uri(file.path):
        # Headers are not read over a network: a task reads the whole file.
        yield LogPiece(file.path, file.name, number, is_whole=True)
        return
    with open(file.path, "rb") as opened:
        head = opened.read(len(BINLOG_MAGIC) + EVENT_HEADER_SIZE)
        size = os.fstat(opened.fileno()).st_size
        if not head.startswith(BINLOG_MAGIC) or len(head) < len(BINLOG_MAGIC) + EVENT_HEADER_SIZE:
            yield LogPiece(file.path, file.name, number, size=size, is_whole=True)
            return
        with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as data:
            walk = HeaderWalk(data, size)
            cuts = []
            for cut in walk.cuts(max_bytes):
                cuts.append(cut)
                if os.fstat(opened.fileno()).st_size < size:
                    # The kernel ends a process that looks at mapped memory behind a file's end. The reader of the
                    # last piece reports the error.
                    break
    if not walk.can_be_cut:
        yield LogPiece(file.path, file.name, number, size=size, is_whole=True)
        return
    for cut, end in zip(cuts, [*(cut.position for cut in cuts[1:]), size], strict=True):
        yield LogPiece(
            file.path,
            file.name,
            number,
            start=cut.position,
            size=end - cut.position,
            position=cut.position,
            description=cut.description,
            may_be_torn=end == size,
        )
