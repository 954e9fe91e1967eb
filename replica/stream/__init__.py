"""The live stream: a source's events in order, through lost connections, to an iterator or to handlers."""

from .binlog_stream import BinlogStream as BinlogStream
