"""The Spark session that all tests share: two cores, little memory, few partitions."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.spark_python import spark_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark's workers inherit the environment of the moment when the session starts.
SECRET_VARIABLE, SECRET = "REPLICA_TEST_SECRET", "Gwoh7ahc"


def spark_missing() -> str:
    """The reason why Spark cannot run here; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'mysql-replica[spark]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java, which is not installed: apt-get install openjdk-17-jre-headless"
    return ""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if reason := spark_missing():
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    import replica.spark

    # Java only writes folders with non-ASCII names, such as tables have, in a UTF-8 locale.
    scratch = tmp_path_factory.mktemp("spark")
    os.environ |= {"PYSPARK_PYTHON": spark_python(scratch), SECRET_VARIABLE: SECRET, "LC_ALL": "C.UTF-8"}
    session = (
        SparkSession.builder.master("local[2]")
        .appName("mysql-replica tests")
        .config("spark.driver.memory", "1g")
        # A short run spends half of its time on compiling code that would only be fast later.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    replica.spark.register(session)
    yield session
    session.stop()
