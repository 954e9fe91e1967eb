"""Counts the content of a log: ``LogStatistics``, its records, and the report as text and as a page with charts."""

from .collect import LogStatistics as LogStatistics
from .summaries import LagStatistics as LagStatistics
from .summaries import MinuteStatistics as MinuteStatistics
from .summaries import RowCounts as RowCounts
from .summaries import StatementStatistics as StatementStatistics
from .summaries import TableStatistics as TableStatistics
from .summaries import TransactionStatistics as TransactionStatistics
