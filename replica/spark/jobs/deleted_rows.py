"""Which rows of a table a copy of it lacks: when the table is copied anew, these rows have been deleted.

    driver    a file of the table -> the files of the copy that may have rows with its keys    ``Copied``
    task      the keys of that file, looked up in the key columns of those files               ``lacking``

A task holds the keys of one file of the table; the copy passes through in parts. ``convert_tasks`` writes the rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from protocol.records import record, replace

from .conversions import Conversion
from .leaf_files import aligned, folder, read
from .leaf_merge import Flags, KeyIndex
from .leaves import LeafFile
from .staging import schema_from_text, schema_to_text

_NO_ROW: Final = -1


@record(frozen=True, slots=True)
class Copied:
    """A copy: its folder and its key. ``files``: file of the table -> files of the copy that may have its keys."""

    path: str
    key: pa.Schema
    files: Mapping[str, Sequence[str]]

    def to_json(self) -> dict[str, Any]:
        """As JSON, for tasks."""
        return {"path": self.path, "key": schema_to_text(self.key), "files": dict(self.files)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Copied":
        """The reverse of ``to_json``."""
        return cls(data["path"], schema_from_text(data["key"]), data["files"])


def overlapping(
    files: Sequence[LeafFile], copied: Sequence[LeafFile], *, is_comparable: bool
) -> dict[str, list[str]]:
    """For each file the files of the copy that may have its keys; all of them unless places ``is_comparable``."""
    return {
        file.path: [
            other.path
            for other in copied
            if not is_comparable or (other.low <= file.high and file.low <= other.high)
        ]
        for file in files
    }


def lacking(
    copied: Copied,
    conversion: Conversion,
    source: str,
    path: str,
    schema: pa.Schema,
    storage: Mapping[str, str],
) -> Flags:
    """For each row of a file of the table (folder ``source``) whether the copy lacks its key.

    The keys are compared in the types of the copy; ``conversion`` converts the table's rows to these types.
    """
    key = copied.key
    if not len(key):
        # The key of a table that has had no row is not known.
        return np.ones(sum(rows.num_rows for rows in read(folder(source, storage), [path], schema)), np.bool_)
    olds = {new: old for old, new in conversion.spelled.items()}
    names = [olds.get(name, name) for name in key.names]
    only = replace(conversion, own=(), wanted=key, deleted=None, is_history=False)
    parts = [only.apply(rows) for rows in read(folder(source, storage), [path], schema, names)]
    keys = aligned(pa.concat_tables(parts) if parts else key.empty_table(), key)
    index, is_lacking = KeyIndex(keys), np.ones(keys.num_rows, np.bool_)
    for rows in read(folder(copied.path, storage), copied.files[path], key):
        found = index.find(rows)
        is_lacking[found[found != _NO_ROW]] = False
    return is_lacking
