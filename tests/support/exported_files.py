"""Reads the files of `mysql-replica copy` again: rows as dicts, with the values of the log (CSV: their text)."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = dict[str, Any]


def exported_rows(folder: Path, table: str) -> list[Row]:
    """All rows of a table, file by file. CSV has text and NULL only."""
    paths = sorted((folder / table).iterdir())
    assert [path.stem for path in paths] == [f"part-{number:05d}" for number in range(len(paths))]
    return [row for path in paths for row in _READERS[path.suffix](path)]


def _parquet(path: Path) -> list[Row]:
    rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


def _json_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


_READERS = {".parquet": _parquet, ".jsonl": _json_lines, ".csv": _csv}
