"""Tables that are created while an export runs: they are not in it, and it says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from replica.config.options import Options
from replica.export.exporter import Exporter
from tests.support.small_export import IDENTITY, TABLE


def test_a_table_with_rows_that_is_not_exported_is_named_once(tmp_path: Path) -> None:
    """Nothing told of it, and a consumer that follows the export never gets these rows."""
    options = Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"})
    exporter = Exporter(options, str(tmp_path / "out"), "jsonl")
    change: Any = SimpleNamespace(table=TABLE, before=None, after={"id": 1, "v": "x"})
    assert exporter.left_out == []
    assert exporter._operations(change) == exporter._operations(change) == []
    assert exporter.left_out == [".".join(IDENTITY)]
    exporter.close()
