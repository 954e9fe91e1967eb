"""Memory of a mapped file: a reader gives back the pages that it has passed.

Otherwise the process keeps all of them: a walk over the headers of 1 GB counts as 1 GB of its memory. The kernel
still caches the pages, and maps them again when they are read.
"""

import mmap
from typing import Final

_STEP: Final = 8 << 20


def release(data: mmap.mmap | bytes, end: int) -> int:
    """Give back the pages before the offset ``end``. Returns the offset at which to do it again; begin with 0."""
    length = end - end % mmap.PAGESIZE
    if length and isinstance(data, mmap.mmap):
        data.madvise(mmap.MADV_DONTNEED, 0, length)
    return end + _STEP
