"""A source made of binlog files: ``BinlogServer`` serves them to replicas, to tools and to this library.

    files -> ServedLog -> Dump -> Acceptor -> network

The server answers a fixed list of SQL statements, and it changes no file.
"""

from .binlog_server import BinlogServer
from .replicas import ConnectedReplica

__all__ = ["BinlogServer", "ConnectedReplica"]
