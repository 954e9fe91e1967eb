"""Column values and JSON documents with what JSON lines say for each."""

from __future__ import annotations

import array
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from protocol.values.jsonb import JsonOpaque

VALUES: list[tuple[object, object]] = [
    (None, None),
    (18446744073709551615, 18446744073709551615),
    (-5, -5),
    (0.1, 0.1),
    (float("nan"), "NaN"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    (Decimal("1.50"), "1.50"),
    (Decimal("-0.000000001"), "-0.000000001"),
    (date(2026, 1, 31), "2026-01-31"),
    (date(1, 1, 1), "0001-01-01"),
    (datetime(2026, 1, 31, 23, 59, 59, 500000), "2026-01-31T23:59:59.500000"),
    (datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC), "2026-01-31T23:59:59+00:00"),
    ("0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    (timedelta(hours=838, minutes=59, seconds=59), "838:59:59"),
    (-timedelta(microseconds=1), "-00:00:00.000001"),
    ("ä€😀\u2028\0\n", "ä€😀\u2028\0\n"),
    ("\udcff\ud83d", "\udcff\ud83d"),
    (b"\0\xff", {"base64": "AP8="}),
    (b"", {"base64": ""}),
    (array.array("f", [1.5, -2.0]), [1.5, -2.0]),
    (array.array("f", [float("nan")]), ["NaN"]),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
]
DOCUMENTS: list[tuple[Any, object]] = [
    (None, {"$json": None}),
    ([None, True, 1, 1.5, "x", {}, []], [None, True, 1, 1.5, "x", {}, []]),
    ({"a": {"b": Decimal("1.50")}}, {"a": {"b": {"$decimal": "1.50"}}}),
    (date(2020, 2, 29), {"$date": "2020-02-29"}),
    ([datetime(2020, 2, 29, 1, 2, 3, 4)], [{"$datetime": "2020-02-29T01:02:03.000004"}]),
    ([timedelta(hours=-1)], [{"$time": "-01:00:00"}]),
    (JsonOpaque(b"\xff", 252), {"$base64": "/w==", "$type": 252}),
    ({"$decimal": "1.50"}, {"$json": {"$decimal": "1.50"}}),
    ({"": {"$x": [None]}}, {"": {"$json": {"$x": [None]}}}),
    ([float("inf")], ["Infinity"]),
]
