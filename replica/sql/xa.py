"""XA transactions in SQL: their ids, and the statements of the log that name them."""

import re
from typing import Final, NamedTuple

from protocol.binlog.events import XaPrepareEvent

#: The statements that end a prepared XA transaction begin with these.
XA_COMMIT: Final = "XA COMMIT"
XA_ROLLBACK: Final = "XA ROLLBACK"
_STATEMENT: Final = re.compile(
    r"XA (?:START|COMMIT|ROLLBACK) X'((?:[0-9a-f]{2})*)',X'((?:[0-9a-f]{2})*)',([0-9]{1,20})(?![0-9])",
    re.IGNORECASE,
)


class Xid(NamedTuple):
    """The id of an XA transaction. ``str(xid)`` is the form that servers log: ``X'6162',X'',1``.

    XA START takes ``gtrid``, ``bqual`` and ``format_id``, in this order.
    """

    format_id: int
    gtrid: bytes
    bqual: bytes

    @classmethod
    def of(cls, event: XaPrepareEvent) -> "Xid":
        """The id of the transaction that an event prepares."""
        return cls(event.format_id, event.gtrid, event.bqual)

    def __str__(self) -> str:
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"


def statement_xid(sql: str) -> Xid | None:
    """The id in XA START, COMMIT or ROLLBACK as servers log them; None for other statements."""
    found = _STATEMENT.match(sql) if sql.startswith("XA ") else None
    return found and Xid(int(found[3]), bytes.fromhex(found[1]), bytes.fromhex(found[2]))


def prepare_statement(xid: Xid, one_phase: bool) -> str:
    """The statement that an XA_PREPARE event stands for."""
    return f"{XA_COMMIT} {xid} ONE PHASE" if one_phase else f"XA PREPARE {xid}"


def ends_prepared(sql: str) -> bool:
    """Whether a statement of the log commits or rolls back a prepared XA transaction."""
    return sql.startswith((XA_COMMIT, XA_ROLLBACK))
