"""A source made of binlog files: ``BinlogServer`` serves them to replicas, tools and our own client.

    files -> ServedLog -> Dump -> Acceptor -> the network

It executes no statement and changes no file.
"""

from .binlog_server import BinlogServer
from .replicas import ConnectedReplica

__all__ = ["BinlogServer", "ConnectedReplica"]
