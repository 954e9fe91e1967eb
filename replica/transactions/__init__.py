"""Events grouped into transactions, and the places between them that a stream can go on from. No input or output."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.lazy import importer

if TYPE_CHECKING:
    from .replay import TransactionRestarted as TransactionRestarted
    from .transaction import FileTransaction as FileTransaction
    from .transaction import FileTransactions as FileTransactions
    from .transaction import Transaction as Transaction
    from .transaction import Transactions as Transactions

# Reading files takes the places alone.
_LATER: Final = MappingProxyType(
    {
        "TransactionRestarted": "replay",
        "FileTransaction": "transaction",
        "FileTransactions": "transaction",
        "Transaction": "transaction",
        "Transactions": "transaction",
    }
)
__getattr__ = importer(__name__, _LATER)
