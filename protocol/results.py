"""The answer to one COM_QUERY as its packets arrive: OK, or a text result set.

It has two endings of a result set to tell apart (DEPRECATE_EOF and before) and refuses what was not asked
for: local files and further results. ERR packets are its caller's.
"""

from .constants import MAX_FRAME_PAYLOAD, Capability, StatusFlag
from .errors import ProtocolError
from .messages import (
    EOF_HEADER,
    LOCAL_INFILE_HEADER,
    OK_HEADER,
    ColumnDefinition,
    Eof,
    Ok,
    ResultSet,
    TextValue,
    parse_column_count,
    parse_row,
)

_EOF_SIZE = 5


def parse_end(payload: bytes, capabilities: Capability) -> Ok | Eof:
    """The packet with header 0xFE that ends rows or a dump: EOF, or OK in its place; the size tells."""
    return Eof.parse(payload) if len(payload) == _EOF_SIZE else Ok.parse(payload, capabilities)


class QueryAnswer:
    """Collects one answer: ``receive()`` returns it once it is whole."""

    def __init__(self, capabilities: Capability) -> None:
        self._capabilities = capabilities
        self._deprecate_eof = Capability.DEPRECATE_EOF in capabilities
        # A row of 16 MB may begin with 0xFE too.
        self._end_limit = MAX_FRAME_PAYLOAD if self._deprecate_eof else 9
        self._column_count = 0
        self._columns: list[str] = []
        self._in_rows = False
        self._rows: list[tuple[TextValue, ...]] = []

    def receive(self, payload: bytes) -> Ok | ResultSet | None:
        """Take the next packet, which is neither empty nor ERR."""
        if self._in_rows:
            return self._on_row(payload)
        if not self._column_count:
            return self._on_first(payload)
        if len(self._columns) < self._column_count:
            self._columns.append(ColumnDefinition.parse(payload).name)
            self._in_rows = self._deprecate_eof and len(self._columns) == self._column_count
        else:
            Eof.parse(payload)
            self._in_rows = True
        return None

    def _on_first(self, payload: bytes) -> Ok | None:
        if payload[0] == OK_HEADER:
            ok = Ok.parse(payload, self._capabilities)
            _expect_last(ok)
            return ok
        if payload[0] == LOCAL_INFILE_HEADER:
            raise ProtocolError("the server asks for a local file, which was not offered")
        self._column_count = parse_column_count(payload)
        return None

    def _on_row(self, payload: bytes) -> ResultSet | None:
        if payload[0] == EOF_HEADER and len(payload) < self._end_limit:
            _expect_last(parse_end(payload, self._capabilities))
            return ResultSet(tuple(self._columns), self._rows)
        self._rows.append(parse_row(payload, self._column_count))
        return None


def _expect_last(end: Ok | Eof) -> None:
    if end.status & StatusFlag.MORE_RESULTS_EXISTS:
        raise ProtocolError("the server announces a further result, which was not asked for")
