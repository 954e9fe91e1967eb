"""A relay: one connection to a source, whose log is written into files that equal the source's byte for byte.

    Session -> raw events -> RelayFolder; replica.server serves the files on to many readers

No event is decoded.
"""

from .binlog_relay import BinlogRelay
from .folder import RelayFolder

__all__ = ["BinlogRelay", "RelayFolder"]
