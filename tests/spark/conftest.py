"""One Spark session for all tests: two cores, little memory, and no more partitions than need be."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark's workers have the environment in which the session began.
SECRET_VARIABLE, SECRET = "REPLICA_TEST_SECRET", "Gwoh7ahc"


def spark_missing() -> str:
    """Why there can be no Spark here; empty if there can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'mysql-replica[spark]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java, which Spark needs: apt-get install openjdk-17-jre-headless"
    return ""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if reason := spark_missing():
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    import replica.spark

    # Java writes folders whose names are not ASCII, such as tables have, in a locale that has them.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, SECRET_VARIABLE: SECRET, "LC_ALL": "C.UTF-8"}
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("mysql-replica tests")
        .config("spark.driver.memory", "1g")
        # Half of the time of a short run is spent on compiling what would be fast in the end.
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
