"""Groups events into transactions, and knows the places between them from which a stream can resume. No I/O."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ..config.lazy import importer

if TYPE_CHECKING:
    from .replay import TransactionRestarted as TransactionRestarted
    from .transaction import FileTransaction as FileTransaction
    from .transaction import FileTransactions as FileTransactions
    from .transaction import Transaction as Transaction
    from .transaction import Transactions as Transactions

# Imported at first use: reading files does not need these.
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
