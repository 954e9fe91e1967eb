"""JSON text: what MySQL 9.7 printed for these values, in SELECT and in mysqlbinlog."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.values.jsonb import JsonOpaque, JsonValue
from protocol.values.jsonb_text import float_text, json_text, render_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e15, "1e15"),
        (1e14, "100000000000000.0"),
        (123456789012345680.0, "1.2345678901234568e17"),
        (0.00001, "0.00001"),
        (-0.00001, "-0.00001"),
        (1e-15, "0.000000000000001"),
        (123456789012345e-29, "0.00000000000000123456789012345"),
        (1e-16, "1e-16"),
        (-1287556421783232.8, "-1287556421783232.8"),
        (1234567890123456.0, "1.234567890123456e15"),
        (100.0, "100.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (-2.2250738585072014e-308, "-2.2250738585072014e-308"),
        (5e-324, "5e-324"),
        (3e10, "30000000000.0"),
        (999999999999999.9, "999999999999999.9"),
        (float("inf"), "0"),
        (float("nan"), "0"),
    ],
)
def test_float_text(value: float, text: str) -> None:
    assert float_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_text_means_the_same_double(value: float) -> None:
    assert float(float_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (18446744073709551615, "18446744073709551615"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E-9"), "0.000000001"),
        ('a\x01\n\t\\"/\x7fé😀', '"a\\u0001\\n\\t\\\\\\"/\x7fé😀"'),
        ("\b\f\r\x1f", '"\\b\\f\\r\\u001f"'),
        ([1, [2, {"a": True, "b": None, "aa": False}]], '[1, [2, {"a": true, "b": null, "aa": false}]]'),
        ([], "[]"),
        ({}, "{}"),
        ({"": 1, "é": 'x"'}, '{"": 1, "é": "x\\""}'),
        (date(2020, 1, 2), '"2020-01-02"'),
        (datetime(20, 1, 2, 3, 4, 5), '"0020-01-02 03:04:05.000000"'),
        (datetime(2020, 1, 2, 3, 4, 5, 123456), '"2020-01-02 03:04:05.123456"'),
        (timedelta(hours=-838, minutes=-59, seconds=-59), '"-838:59:59.000000"'),
        (timedelta(hours=1, minutes=2, seconds=3.4), '"01:02:03.400000"'),
        (timedelta(microseconds=-1), '"-00:00:00.000001"'),
        (["0000-00-00"], '["0000-00-00"]'),
        (JsonOpaque(b"\0\5", 16), '"base64:type16:AAU="'),
        (JsonOpaque(b"", 252), '"base64:type252:"'),
        ([JsonOpaque(b"\xab" * 57, 15)], f'["base64:type15:{"q6ur" * 19}"]'),
        ([JsonOpaque(b"\xab" * 58, 15)], f'["base64:type15:{"q6ur" * 19}\\nqw=="]'),
    ],
)
def test_text(value: JsonValue, text: str) -> None:
    assert render_json(value) == text
    is_string = text.startswith('"')
    assert render_json(value, bare=True) == (json.loads(text, strict=False) if is_string else text)


def test_only_a_lone_string_is_bare() -> None:
    assert json_text(b"\x0c\x02a\n") == "a\n"
    assert json_text(bytes.fromhex("02 0100 0900 0c0700 0161")) == '["a"]'
    assert json_text(b"") == "null"
