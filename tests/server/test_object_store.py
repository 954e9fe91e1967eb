"""The object store of the Spark tests: if it lost concurrent commits, as some do, they would prove nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("moto")

import boto3
import pyarrow as pa
from botocore.exceptions import ClientError
from deltalake import DeltaTable, write_deltalake

from tests.server.support.clusters import BUCKET

WRITERS, APPENDS = 4, 5


def test_an_object_that_exists_is_not_replaced(store: dict[str, str]) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=store["AWS_ENDPOINT_URL"],
        aws_access_key_id=store["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=store["AWS_SECRET_ACCESS_KEY"],
        region_name=store["AWS_REGION"],
    )
    client.put_object(Bucket=BUCKET, Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=BUCKET, Key="once", Body=b"second", IfNoneMatch="*")


def test_concurrent_commits_are_all_there(store: dict[str, str]) -> None:
    target = f"s3://{BUCKET}/appends"
    schema = pa.schema([("number", pa.int64())])
    DeltaTable.create(target, schema, storage_options=store)

    def append(writer: int) -> None:
        for number in range(APPENDS):
            rows = pa.table({"number": [writer * APPENDS + number]}, schema)
            write_deltalake(target, rows, mode="append", storage_options=store)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append, range(WRITERS)))
    rows = DeltaTable(target, storage_options=store).to_pyarrow_table()["number"].to_pylist()
    assert sorted(rows) == list(range(WRITERS * APPENDS))
