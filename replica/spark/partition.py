"""The partition that Spark sends to a task: one piece of the log, as a plain value."""

from pyspark.sql.datasource import InputPartition

from ..spool.pieces import LogPiece


class LogPartition(InputPartition):
    """One piece of the log, read by one task."""

    def __init__(self, piece: LogPiece) -> None:
        self.value: LogPiece = piece
