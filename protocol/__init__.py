"""The bytes of MySQL replication: the client/server protocol (``conversation``) and the binary log (``binlog``).

This package knows bytes only: no sockets, no event loop, no Spark. ``replica`` imports it, never the other way.
"""
