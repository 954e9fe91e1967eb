"""Rows as VARIANT have the values of the rows as JSON, with their types. PySpark decodes them without a JVM."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from datetime import date
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import VariantVal

from replica.spark.envelope import envelope_schema
from replica.spark.read_task import ReadPlan
from replica.spool.pieces import ReadSettings
from tests.spark.support.generated_log import write_generated
from tests.spark.support.planned import JSON_PLAN, plan, read_all

VARIANT_PLAN = ReadPlan(ReadSettings(), envelope_schema("variant"))


@pytest.mark.parametrize("trial", range(3))
def test_variants_hold_the_values_with_their_types(seed: int, tmp_path: Path, trial: int) -> None:
    [path] = write_generated(tmp_path, seed, files=1, transactions=60)
    pieces = plan(path, 1 << 30)
    variants, texts = read_all(pieces, VARIANT_PLAN), read_all(pieces, JSON_PLAN)
    assert len(variants) == len(texts) > 0
    for row, text in zip(variants, texts, strict=True):
        assert row["seq"] == text["seq"]
        for image in ("before", "after"):
            assert (row[image] is None) == (text[image] is None)
            if text[image] is not None:
                mine, others = value_of(row[image]), json.loads(text[image])
                assert mine.keys() == others.keys()
                for name, value in others.items():
                    assert is_same(mine[name], value), (name, mine[name], value)


def value_of(variant: dict[str, bytes]) -> Any:
    # PySpark scales decimals in the current context, whose 28 digits are too few.
    with localcontext() as context:
        context.prec = 60
        return VariantVal(variant["value"], variant["metadata"]).toPython()


def is_same(value: Any, text: Any) -> bool:
    """Whether a value of a VARIANT and a value in JSON are the same."""
    if isinstance(value, bytes | bytearray):
        return bool(b64decode(text["base64"]) == value)
    if isinstance(value, list):
        return all(map(is_same, value, text)) and len(value) == len(text)
    if isinstance(value, float) and not math.isfinite(value):
        return isinstance(text, str)
    if isinstance(value, Decimal):
        return value == Decimal(text)
    if isinstance(value, date):
        return bool(value.isoformat() == text)
    if isinstance(value, str) and value != text:
        # A JSON document is text in a VARIANT.
        return bool(json.loads(value) == text)
    return bool(value == text)
