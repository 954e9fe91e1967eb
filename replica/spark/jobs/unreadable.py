"""Files of a target that cannot be read or written: one error that names the place, and says what to do."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSelector

from protocol.errors import CheckpointError

from .leaf_files import folder

# deltalake paints its texts, and adds the stack of its calls.
_PAINT: Final = re.compile("\x1b\\[\\d+m↳?")
_STACK: Final = re.compile(r"\n\s*0: <unknown>.*", re.DOTALL)
_LONGEST: Final = 300


@contextlib.contextmanager
def told(place: str, remedy: str) -> Iterator[None]:
    """Raise errors of the files of a place as a ``CheckpointError``, but not that a Delta table is not there."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError, pa.ArrowInvalid) as error:
        text = " ".join(_PAINT.sub(" ", _STACK.sub("", str(error))).split())
        raise CheckpointError(f"{place}: {text[:_LONGEST]} -- {remedy}") from error


def opened_table(path: str, storage: Mapping[str, str]) -> DeltaTable:
    """A kept table. Raises ``TableNotFoundError``, or ``CheckpointError`` for one that this user cannot read."""
    remedy = "let this user read it; if it is damaged, delete the folder, and the job says how to copy the table anew"
    with told(path, remedy):
        try:
            return DeltaTable(path, storage_options=dict(storage))
        except TableNotFoundError:
            # An error of the system if this user may not look.
            folder(path, storage).get_file_info(FileSelector("", allow_not_found=True))
            raise
