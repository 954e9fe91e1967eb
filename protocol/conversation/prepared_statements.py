"""Prepared statements without parameters: their commands, and the answer to COM_STMT_PREPARE, packet by packet.

The rows of a prepared statement come in the binary protocol: numbers as they are stored, not as rounded text.
Statements have no parameters here, so an answer that announces some is an error. ``replica_side`` decides when a
command may be sent. Layouts: MySQL's doxygen pages ``page_protocol_com_stmt_*``.
"""

from ..constants import Capability, Command
from ..errors import ProtocolError
from ..records import record
from .commands import command_reader, encode_text, encode_uint
from .messages import OK_HEADER, Eof, decode_text, message_reader
from .results import MAX_COLUMNS, ColumnDefinition

_NO_CURSOR = 0
_ITERATIONS = 1


@record(frozen=True, slots=True)
class Prepare:
    """COM_STMT_PREPARE: the server parses a statement and keeps it under a number."""

    sql: str

    @classmethod
    def parse(cls, payload: bytes) -> "Prepare":
        """Read the command."""
        return cls(decode_text(command_reader(payload, Command.STMT_PREPARE).rest()))

    def encode(self) -> bytes:
        """The payload of this command."""
        return bytes([Command.STMT_PREPARE]) + encode_text(self.sql, "the statement")


@record(frozen=True, slots=True)
class Execute:
    """COM_STMT_EXECUTE of a statement without parameters; rows come without a cursor, as fast as they are read."""

    statement_id: int

    @classmethod
    def parse(cls, payload: bytes) -> "Execute":
        """Read the command; a cursor and parameters are refused."""
        reader = command_reader(payload, Command.STMT_EXECUTE)
        statement_id, flags, iterations = reader.uint(4), reader.u8(), reader.uint(4)
        reader.expect_end()
        if (flags, iterations) != (_NO_CURSOR, _ITERATIONS):
            raise ProtocolError(f"COM_STMT_EXECUTE has the flags {flags} and {iterations} iterations")
        return cls(statement_id)

    def encode(self) -> bytes:
        """The payload of this command."""
        return b"".join(
            [
                bytes([Command.STMT_EXECUTE]),
                encode_uint(self.statement_id, 4, "statement id"),
                bytes([_NO_CURSOR]),
                _ITERATIONS.to_bytes(4, "little"),
            ]
        )


@record(frozen=True, slots=True)
class CloseStatement:
    """COM_STMT_CLOSE: the server forgets a prepared statement, without an answer."""

    statement_id: int

    @classmethod
    def parse(cls, payload: bytes) -> "CloseStatement":
        """Read the command."""
        reader = command_reader(payload, Command.STMT_CLOSE)
        statement_id = reader.uint(4)
        reader.expect_end()
        return cls(statement_id)

    def encode(self) -> bytes:
        """The payload of this command."""
        return bytes([Command.STMT_CLOSE]) + encode_uint(self.statement_id, 4, "statement id")


@record(frozen=True, slots=True)
class Prepared:
    """The first packet of the answer to COM_STMT_PREPARE: the statement's number, and how many columns it has."""

    statement_id: int
    columns: int
    parameters: int = 0
    warnings: int = 0

    @classmethod
    def parse(cls, payload: bytes) -> "Prepared":
        """Read the packet."""
        reader = message_reader(payload)
        header = reader.u8()
        if header != OK_HEADER:
            raise ProtocolError(f"the answer to COM_STMT_PREPARE begins with 0x{header:02x}")
        statement_id, columns, parameters = reader.uint(4), reader.uint(2), reader.uint(2)
        reader.skip(1)
        warnings = reader.uint(2)
        reader.expect_end()
        return cls(statement_id, columns, parameters, warnings)

    def encode(self) -> bytes:
        """The payload of this packet."""
        return b"".join(
            [
                bytes([OK_HEADER]),
                encode_uint(self.statement_id, 4, "statement id"),
                encode_uint(self.columns, 2, "number of columns"),
                encode_uint(self.parameters, 2, "number of parameters"),
                b"\0",
                encode_uint(self.warnings, 2, "number of warnings"),
            ]
        )


@record(frozen=True, slots=True)
class RowsBegin:
    """A prepared statement has rows of these columns: ``Connection.next_rows()`` returns them."""

    columns: tuple[ColumnDefinition, ...]


class PrepareAnswer:
    """Collects the packets of an answer to COM_STMT_PREPARE: ``receive()`` returns ``Prepared`` after the last one.

    The column definitions are read and dropped: those that come with the rows hold even if the table was changed
    in between.
    """

    def __init__(self, capabilities: Capability) -> None:
        self._deprecate_eof = Capability.DEPRECATE_EOF in capabilities
        self._prepared: Prepared | None = None
        self._missing = 0

    def receive(self, payload: bytes) -> Prepared | None:
        """Take the next packet, which is neither empty nor ERR."""
        if self._prepared is None:
            return self._on_first(payload)
        if self._missing:
            ColumnDefinition.parse(payload)
            self._missing -= 1
            return self._prepared if self._deprecate_eof and not self._missing else None
        Eof.parse(payload)
        return self._prepared

    def _on_first(self, payload: bytes) -> Prepared | None:
        prepared = Prepared.parse(payload)
        if prepared.parameters:
            raise ProtocolError(
                f"the server found {prepared.parameters} parameters in a statement without any"
            )
        if prepared.columns > MAX_COLUMNS:
            raise ProtocolError(f"a statement has {prepared.columns} columns; {MAX_COLUMNS} are allowed")
        self._prepared = prepared
        self._missing = prepared.columns
        return None if prepared.columns else prepared
