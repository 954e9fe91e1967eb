"""Statements of a log that are long and repeat themselves are written in one walk, in every format."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from replica.cli import main
from tests.support.limited_steps import Step, run_limited
from tests.support.log_builder import LogBuilder

LENGTH = 300_000
STATEMENTS = (
    "CREATE TABLE t (a INT)" + " " * LENGTH + "x",
    "CREATE TABLE t (a INT)" + " START TRANSACTION" * (LENGTH // 18) + "x",
    " " * LENGTH + "CREATE",
    "CREATE OR REPLACE" + " " * LENGTH,
    "XA COMMIT X'" + "3" * LENGTH,
    "DELETE FROM `" + "``" * LENGTH,
)
FORMATS = (("-f", "text"), ("-f", "json"), ("-f", "sql"), ("--events",), ("-f", "sql", "--tables", "s.*"))


def _decode(statement: str, arguments: tuple[str, ...]) -> None:
    log = LogBuilder()
    log.statement(statement)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bin.000001")
        path.write_bytes(log.data)
        assert main(["decode", *arguments, "-o", str(path.with_name("output")), str(path)]) == 0


def steps(seed: int) -> Iterator[Step]:
    for statement in STATEMENTS:
        for arguments in FORMATS:
            yield f"{statement[:30]!r} {' '.join(arguments)}", partial(_decode, statement, arguments)


def test_long_statements() -> None:
    """CREATE TABLE with a megabyte of spaces took hours as SQL: its end was looked for from each of them."""
    assert run_limited("tests.unit.render.test_long_statements:steps", seed=0) == len(STATEMENTS) * len(
        FORMATS
    )
