"""The schema history of a spool whose ``spoolDir`` is a URI: in the driver's own folder, with a copy in ``spoolDir``.

    driver's disk    folder/schemas       read and added to, as everywhere
    spoolDir         uri/schemas          written anew at each change, which is DDL or a table that was not known

The copy is for a driver on another machine. It is written before the spool has the statement, so it knows all tables
of the log that any driver has spooled: where the two differ, the copy is right, unless the local history only goes on
where the copy ends.
"""

from collections.abc import Sequence

from ..config.schema_store import FileSchemaStore
from .storage import StoredFile


class CopiedSchemaStore(FileSchemaStore):
    """A schema store in a file, with a copy. Raises ``CheckpointError`` if the copy cannot be read or written."""

    def __init__(self, path: str, copy: StoredFile) -> None:
        super().__init__(path)
        self._copy = copy

    def __repr__(self) -> str:
        # What an error asks to be removed.
        return f"{super().__repr__()} with its copy {self._copy.uri}"

    def save(self, lines: Sequence[str]) -> None:
        """Replace file and copy."""
        super().save(lines)
        self._send()

    def append(self, lines: Sequence[str]) -> None:
        """Write lines behind the others, and the copy anew."""
        super().append(lines)
        self._send()

    def fetch(self) -> bool:
        """Have the file be what the last driver has written. Returns whether that was one on another machine."""
        lines, copied = self.load(), self._copy.read()
        # A copy that cannot be decoded is an error when it is read as a history.
        kept = [] if copied is None else copied.decode(errors="replace").split("\n")[:-1]
        if lines is not None and lines[: len(kept)] == kept:
            if len(lines) > len(kept):
                self._send()
            return False
        if copied is not None:
            super().save(kept)
        return copied is not None

    def clear(self) -> None:
        """Delete the copy."""
        self._copy.delete()

    def _send(self) -> None:
        self._copy.write("".join(f"{line}\n" for line in self.load() or ()).encode())
