"""The bytes of MySQL replication: the conversation with a source, and the binary log (``protocol.binlog``).

It knows bytes only: no sockets, no event loop, no Spark. ``replica`` stands on it, never the other way.
"""
