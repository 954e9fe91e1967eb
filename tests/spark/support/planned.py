"""Pieces of a log read as Spark's tasks read them, and compared with what open_binlog gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from replica.files.log_files import find_log_files
from replica.spark.envelope import envelope_schema
from replica.spark.read_task import ReadPlan, read_piece
from replica.spool.pieces import LogPiece, ReadSettings
from replica.spool.planner import plan_files

JSON_PLAN = ReadPlan(ReadSettings(), envelope_schema("json"), row_format="json", on_statement="ignore")


def read_all(pieces: Iterable[LogPiece], plan: ReadPlan = JSON_PLAN) -> list[dict[str, Any]]:
    rows = []
    for piece in pieces:
        for batch in read_piece(piece, plan):
            batch.validate(full=True)
            assert batch.schema == plan.schema
            rows += batch.to_pylist()
    return rows


def plan(source: object, size: int) -> list[LogPiece]:
    return plan_files(find_log_files(source), size)  # type: ignore[arg-type]


def as_expected(row: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """A row of an envelope in the form of the expected one."""
    source = row["source"]
    before, after = (row[name] and json.loads(row[name]) for name in ("before", "after"))
    number = None if expected["row"] is None else source["row"]
    return {name: row[name] for name in ("op", "schema", "table", "gtid")} | {
        "before": before,
        "after": after,
        "file": source["file"],
        "pos": source["pos"],
        "row": number,
    }


def compare(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    rows = sorted(rows, key=lambda row: row["seq"])
    assert len(rows) == len(expected)
    assert len({row["seq"] for row in rows}) == len(rows)
    for row, wanted in zip(rows, expected, strict=True):
        # Random bytes may be a NaN; it is text in both.
        assert as_expected(row, wanted) == wanted
