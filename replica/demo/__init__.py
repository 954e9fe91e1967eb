"""The demo: the binary log of half an hour of a small shop, recorded on MySQL 9.7, and a local source to serve it."""

from .log import LOG_NAME, installed_log, recorded_log
from .source import DemoSource

__all__ = ["LOG_NAME", "DemoSource", "installed_log", "recorded_log"]
