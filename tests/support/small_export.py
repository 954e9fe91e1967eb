"""An export of one table ``shop.t``, without a source: rows and changes are brought to its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.constants import ColumnType
from protocol.position import Checkpoint
from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.export.row_formats import row_format
from replica.export.work_folder import WorkFolder
from tests.support.exported_files import exported_rows

TABLE = Table(
    "shop",
    "t",
    (Column("id", ColumnType.LONG, 0, False), Column("v", ColumnType.VARCHAR, 99, True, charset="utf8mb4")),
    (),
    "information_schema",
)
IDENTITY = ("shop", "t")
PLACE = Checkpoint("binlog.000003", 500)
Row = tuple[Any, ...]


def opened(folder: Path, form: str = "jsonl", key: tuple[str, ...] = ("id",)) -> WorkFolder:
    work = WorkFolder(str(folder), row_format(form), {"format": form})
    if not work.tables:
        work.add_table(IDENTITY, key)
    return work


def change(work: WorkFolder, before: Row | None, after: Row | None) -> None:
    work.apply(work.operations(IDENTITY, TABLE, before, after))


def finished(work: WorkFolder, folder: Path) -> list[Row]:
    work.complete(IDENTITY, TABLE, is_dropped=False)
    assert work.is_complete
    work.commit(PLACE, is_copied=True)
    [(name, count)] = work.finish()
    assert name == "shop.t"
    rows = [(int(row["id"]), row["v"]) for row in exported_rows(folder, "shop.t")]
    assert len(rows) == count
    return rows
