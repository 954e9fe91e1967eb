"""The demo: the binary log of half an hour of a small shop, recorded on MySQL 9.7, and a local source to serve it.

For tests of your own program without a database server:

    from replica.demo import DemoSource

    with DemoSource() as source:  # `async with` in an event loop
        with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
            ...

``replica.server.BinlogServer`` serves other logs so, such as one that ``mysql-replica relay`` has written.
"""

from .log import LOG_NAME, installed_log, recorded_log
from .source import DemoSource

__all__ = ["LOG_NAME", "DemoSource", "installed_log", "recorded_log"]
