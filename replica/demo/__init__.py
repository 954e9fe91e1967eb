"""The demo: half an hour of a small shop, recorded on a MySQL 9.7, and a source on this machine that serves it."""

from .log import LOG_NAME, installed_log, recorded_log
from .source import DemoSource

__all__ = ["LOG_NAME", "DemoSource", "installed_log", "recorded_log"]
