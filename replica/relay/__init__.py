"""A relay copies a source's binary log over one connection, into files equal to the source's byte for byte.

One bit may differ: a file that a crash of the source left open keeps its in-use flag there, which is not sent.

    Session -> raw events -> RelayFolder; replica.server serves the files to many replicas

Of the events only statements are decoded, for the schema history beside the files.
"""

from .binlog_relay import BinlogRelay
from .folder import RelayFolder
from .relay_status import RelayStatus

__all__ = ["BinlogRelay", "RelayFolder", "RelayStatus"]
