"""The options of the data source: accepted values, errors that name the option, and hidden secrets."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa

import replica.spark
from protocol.errors import AuthenticationError, ConfigurationError
from protocol.rows.table import Table
from replica.config.table_filter import TableFilter
from replica.spark.envelope import envelope_schema
from replica.spark.jobs import changelog, history, mirror, typed_changelog
from replica.spark.jobs.spark_session import Pace
from replica.spark.source_options import parse_options, parse_size
from replica.spark.stream_connection import connection_options, named_for_spark
from replica.spark.table_mode import table_schema
from replica.spool.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_package_lists_all_options_and_columns() -> None:
    """So that ``help(replica.spark)`` names them all."""
    text = replica.spark.__doc__ or ""
    with pytest.raises(ConfigurationError) as raised:
        parse_options({"no such option": ""})
    options = str(raised.value).partition("the options are ")[2].split(", ")
    schemas: list[pa.Schema] = [envelope_schema("json"), table_schema(Table("shop", "orders", ()), "both")]
    columns = [name for schema in schemas for name in schema.names]
    assert len(options) > 40
    assert [name for name in (*options, *columns) if not re.search(rf"(?<!\w){name}(?!\w)", text)] == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("128m", 128 << 20),
        (" 4K ", 4096),
        ("1gb", 1 << 30),
        ("2MiB", 2 << 20),
        ("7b", 7),
        ("1T", 1 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("maxPartitionBytes", text) == size


@pytest.mark.parametrize("text", ["", "m", "-1", "0", "1.5m", "1x", "99999999999t"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"maxPartitionBytes: .*size"):
        parse_size("maxPartitionBytes", text)


def test_names_in_any_case() -> None:
    options = parse_options({"PATH": "/logs", "includetables": "shop.*, a.b", "MaxPartitionBytes": "1m"})
    assert options.path == "/logs"
    assert options.settings.tables == ("shop.*", "a.b")
    assert options.max_partition_bytes == 1 << 20


def test_the_largest_event_is_limited_for_files_and_live_sources() -> None:
    options = parse_options({"user": "u", "maxEventBytes": "8m"})
    assert options.settings.max_event_bytes == 8 << 20
    assert connection_options(options).max_event_bytes == 8 << 20


def test_a_table_is_no_pattern() -> None:
    options = parse_options({"path": "/logs", "schemaMode": "TABLE", "table": "shop.a[b]*"})
    wants = TableFilter(options.settings.tables)
    assert wants("shop", "a[b]*")
    assert not wants("shop", "ab")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "path: give the binlog files"),
        ({"path": ""}, "path: the value is empty"),
        (
            {"path": "/logs", "tables": "a.b"},
            r"option tables \(did you mean includeTables or excludeTables\?\); ",
        ),
        (
            {"path": "/logs", "includeTabels": "a.b"},
            r"option includeTabels \(did you mean includeTables\?\); ",
        ),
        ({"user": "u", "tls_ca": "x"}, r"unknown option tls_ca \(did you mean tlsCa\?\); the options are "),
        ({"user": "u", "colour": "x"}, "unknown option colour; the options are connectTimeout, "),
        ({"path": "/logs", "includeTables": "orders"}, "includeTables: .*'orders'"),
        ({"path": "/logs", "schemaMode": "rows"}, "schemaMode: one of envelope, table"),
        ({"path": "/logs", "schemaMode": "table"}, "table: schemaMode=table needs"),
        ({"path": "/logs", "schemaMode": "table", "table": "shop."}, "table: schema and table with a dot"),
        (
            {"path": "/logs", "schemaMode": "table", "table": "a.b", "includeTables": "c.d"},
            "includeDdl and rowFormat have no effect",
        ),
        ({"path": "/logs", "table": "a.b"}, "table and images need schemaMode=table"),
        ({"path": "/logs", "includeDdl": "yes"}, "includeDdl: true or false"),
        ({"path": "/logs", "host": "db"}, "host cannot be given with path"),
        ({"path": "/logs", "endingOffsets": "latest"}, "endingOffsets cannot be given with path"),
        ({"user": "u", "endingOffsets": "earliest"}, "endingOffsets: must be latest or an offset's JSON"),
        ({"path": "/logs", "maxEventBytes": "100"}, "maxEventBytes: .* from 4096 to"),
        ({"path": "/logs", "maxEventBytes": "4g"}, "maxEventBytes: .* from 4096 to"),
        ({"path": "/logs", "password": "x"}, "password cannot be given with path"),
        ({"user": "u", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger: a whole number of at least 1"),
        ({"user": "u", "password": "a", "passwordEnv": "B"}, "give the password by one of them only"),
        (
            {"user": "u", "passwordEnv": "NO_SUCH_VARIABLE"},
            r"'NO_SUCH_VARIABLE' is not set in this process of Spark: .* \(spark.executorEnv.NO_SUCH_VARIABLE\)",
        ),
        (
            {"user": "u", "startingOffsets": "latest", "startingGtidSet": ""},
            "startingGtidSet: give only one of them",
        ),
    ],
)
def test_mistakes(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_options(given)


def test_the_password_is_read_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "Ahw6eeth")
    (tmp_path / "password").write_text("Ahw6eeth\n")
    for source in (
        {"password": "Ahw6eeth"},
        {"passwordEnv": "SECRET"},
        {"passwordFile": str(tmp_path / "password")},
    ):
        options = parse_options({"host": "db", "user": "repl", **source})
        assert options.connection == {"host": "db", "user": "repl", "password": "Ahw6eeth"}
        assert "Ahw6eeth" not in repr(options)
    (tmp_path / "password").write_bytes(b"Ahw6\xff")
    with pytest.raises(ConfigurationError, match=r"passwordFile: .* is not UTF-8 text") as raised:
        parse_options({"user": "repl", "passwordFile": str(tmp_path / "password")})
    assert raised.value.__suppress_context__
    files = parse_options({"path": "/logs", "keyFile": "/keys", "keyFileSecretEnv": "SECRET"})
    assert files.settings.key_file_secret == "Ahw6eeth"
    assert "Ahw6eeth" not in repr(files)


def test_read_table_finds_the_place_itself() -> None:
    """Spark's own method was called with two values of one option: a TypeError."""
    from replica.spark.table_reader import read_table

    offset = json.dumps(Offset("", 0, None, "a", 1).to_dict())
    source = {"host": "127.0.0.1", "user": "repl", "table": "shop.orders", "snapshot": "only"}
    with pytest.raises(ConfigurationError, match="startingOffsets: read_table finds the place"):
        read_table(None, {**source, "startingOffsets": offset})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tlsCa": "/tls_ca/tls_ca.pem"}, "tlsCa: /tls_ca/tls_ca.pem: No such file"),
        ({"tls": "disabled", "tlsCa": "/etc/hosts"}, "tlsCa needs tls='verify-ca'"),
        ({"tlsKey": "/key"}, "tlsKey needs tlsCert, the certificate"),
        ({"serverPublicKeyPath": "/nowhere"}, "serverPublicKeyPath: /nowhere: No such"),
        ({"getServerPublicKey": "maybe"}, "getServerPublicKey: true or false"),
        ({"enableCleartextPlugin": "x"}, "enableCleartextPlugin: true or false"),
        ({"connectTimeout": "0"}, "connectTimeout: seconds from"),
        ({"serverId": "0"}, "serverId: a whole number from 1"),
        ({"onSchemaMismatch": "x"}, "onSchemaMismatch: one of error, positional"),
        ({"heartbeat": "x"}, "heartbeat: seconds from"),
    ],
)
def test_errors_of_the_connection_name_the_options_of_spark(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"):
        connection_options(parse_options({"host": "db", "user": "u", **given}))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("startingOffsets", "first", "must be latest, earliest or an offset's JSON"),
        ("startingOffsets", "{}", "the offset has the version None"),
        ("endingOffsets", "[1]", "must be latest, earliest or an offset's JSON"),
        ("startingTimestamp", "yesterday", ""),
        ("startingGtidSet", "first", ""),
        ("passwordFile", "/nowhere", "/nowhere: No such file"),
    ],
)
def test_places_are_checked_with_the_other_options(name: str, text: str, message: str) -> None:
    """They were, when the stream began: a job had begun its state."""
    with pytest.raises(ConfigurationError, match=f"^{name}: {re.escape(message)}"):
        parse_options({"host": "db", "user": "u", name: text})


def test_words_of_python_in_errors() -> None:
    with pytest.raises(ConfigurationError) as raised, named_for_spark():
        raise ConfigurationError(
            "user: set user= or leave it out with exclude_tables=, or (tables=) such as tables='s.*'; all tables stay"
        )
    assert str(raised.value) == (
        "user: set user or leave it out with excludeTables, or (includeTables) such as tables='s.*'; all tables stay"
    )


def test_errors_of_the_server_name_the_options_of_spark() -> None:
    remedy = "give server_public_key_path, or get_server_public_key=True, or tls='verify-ca' with tls_ca."
    with pytest.raises(AuthenticationError) as raised, named_for_spark():
        raise AuthenticationError(2061, "", "no", remedy)
    for text in (str(raised.value), raised.value.remedy, str(pickle.loads(pickle.dumps(raised.value)))):
        assert "give serverPublicKeyPath, or getServerPublicKey=True, or tls='verify-ca' with tlsCa." in text


@pytest.mark.parametrize(
    ("start", "given", "message"),
    [
        # A timer that waits for such a time ended without a word, and no table was merged any more.
        (mirror.start, {"merge_interval": math.nan}, "merge_interval: seconds from 0 to 1e+09, not nan"),
        (mirror.start, {"merge_interval": -1}, "merge_interval: seconds from"),
        (mirror.start, {"merge_interval": "often"}, "merge_interval: seconds from"),
        (typed_changelog.start, {"append_interval": -1}, "append_interval: seconds from"),
        (mirror.start, {"retention_hours": -3}, "retention_hours: a whole number from 0"),
        (history.start, {"retention_hours": 1.5}, "retention_hours: a whole number from 0"),
        # It wrote Parquet.
        (changelog.start, {"format": "orc"}, "format: one of parquet, delta, not 'orc'"),
        (changelog.start, {"layout": "flat"}, "layout: one of shared, tables, not 'flat'"),
        # The first copy, which may take hours, came before Spark's error.
        (mirror.start, {"pace": Pace(interval="soon")}, "interval: must be as '10 seconds', not 'soon'"),
        (changelog.start, {"pace": Pace(interval="-1 s")}, "interval: must be as '10 seconds'"),
    ],
)
def test_options_of_jobs_are_checked_before_anything_is_done(
    spark: SparkSession,
    tmp_path: Path,
    start: Callable[..., object],
    given: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"):
        start(
            spark,
            {"host": "127.0.0.1", "port": "1", "user": "u", "passwordEnv": "PATH"},
            str(tmp_path),
            **given,
        )
    assert list(tmp_path.iterdir()) == []
