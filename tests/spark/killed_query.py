"""A streaming query to Parquet in a process of its own, to be killed.

python -m tests.spark.killed_query FOLDER OPTION=VALUE...   ->   FOLDER/checkpoint, FOLDER/spool, FOLDER/rows
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import replica.spark


def main(folder: Path, *pairs: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = dict(pair.split("=", 1) for pair in pairs)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    replica.spark.register(session)
    frame = (
        session.readStream.format("mysql-binlog").options(spoolDir=str(folder / "spool"), **options).load()
    )
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer.start(str(folder / "rows")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
