"""Requests to copy tables anew, as files in a job's target: ``resync`` writes them, the job takes them. No Spark.

target/_state/requests/NAME.json    the table, the id of the request, and why it failed, if it did
"""

import json
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from pyarrow.fs import FileSelector, FileType

from protocol.errors import CheckpointError
from protocol.records import record

from ...config.folder_names import fitting
from ...spool.storage import system_of, write_whole

_FOLDER: Final = "_state/requests"
# The longest table name in a file name: ".json" follows it, and a dot precedes it while the file is written.
_MOST: Final = 249


@record(frozen=True, slots=True)
class Request:
    """A table to be copied anew. ``failed``: why the job could not; the table stays as it is."""

    table: str
    id: str
    failed: str | None = None


class Requests:
    """The requests in a target."""

    def __init__(self, target: str, storage: Mapping[str, str]) -> None:
        self._system, root = system_of(target, storage)
        self._folder = f"{root}/{_FOLDER}"

    def open(self) -> list[Request]:
        """The requests that a job has not done."""
        return [request for request in self.all() if request.failed is None]

    def all(self) -> list[Request]:
        """All requests, also those that failed."""
        found = self._system.get_file_info(FileSelector(self._folder, allow_not_found=True))
        files = sorted(info.path for info in found if info.type == FileType.File)
        return [request for path in files if (request := self._read(path)) is not None]

    def _read(self, path: str) -> Request | None:
        if path.rpartition("/")[2].startswith("."):
            return None
        try:
            with self._system.open_input_stream(path) as file:
                return Request(**json.loads(file.read()))
        except FileNotFoundError:
            # The job has just done the request.
            return None
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"{path}: {error} -- delete the file, and ask for the table again"
            ) from error

    def add(self, table: str, failed: str | None = None) -> None:
        """Ask for a table, or note why it failed."""
        said = {"table": table, "id": uuid.uuid4().hex, "failed": failed}
        write_whole(self._system, self._path(table), lambda file: file.write(json.dumps(said).encode()))

    def done(self, table: str) -> None:
        """Forget the request for a table."""
        self._system.delete_file(self._path(table))

    def _path(self, table: str) -> str:
        return f"{self._folder}/{fitting(quote(table, safe=''), _MOST)}.json"
