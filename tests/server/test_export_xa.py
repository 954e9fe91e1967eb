"""An export whose table without a key is read anew, which waits for an XA transaction whose rows it has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from replica.config.options import Options
from replica.export.exporter import Exporter
from tests.server.support.streams import SECONDS
from tests.server.support.xa_sessions import two_xa
from tests.support.exported_files import exported_rows
from tests.support.servers import Server


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_an_export_does_not_end_before_its_table_is_read_anew(
    server: Server, schema: str, tmp_path: Path
) -> None:
    server.query(f"CREATE TABLE {schema}.nokey (a INT, KEY (a)) ENGINE=InnoDB")
    server.query(f"CREATE TABLE {schema}.t (id INT)")
    server.query(f"INSERT INTO {schema}.nokey VALUES (1), (2)")
    with two_xa(server, schema) as (first, second):
        # The export has not seen its rows: at its commit all is read again.
        first("START", f"INSERT INTO {schema}.nokey VALUES (7)", "END", "PREPARE")
        # The search for prepared transactions reads the current file and the one before.
        for _ in range(2):
            server.query("FLUSH BINARY LOGS")
        options = Options.build(server.dsn(), {"tables": f"{schema}.*"})
        exporter = Exporter(options, str(tmp_path / "copy"), "jsonl")
        take, steps = exporter._take, list[str]()

        async def taking(tx: Any) -> None:
            await take(tx)
            folder = exporter._folder
            tables = {name: table.is_whole for (_, name), table in folder.tables.items()}
            if tables.get("nokey") and not steps:
                second("START", f"INSERT INTO {schema}.nokey VALUES (9)", "END", "PREPARE")
                steps.append("second is prepared")
            elif tx.outcome == "prepared" and steps == ["second is prepared"]:
                first("COMMIT")
            elif tx.outcome == "commit" and steps == ["second is prepared"]:
                steps.append("first")
            elif tx.outcome == "snapshot" and steps[-1:] == ["first"] and not folder.unfinished:
                steps.append("committed")
                second("COMMIT")

        exporter._take = taking  # type: ignore[method-assign]
        try:
            async with asyncio.timeout(SECONDS), exporter.stream:
                await exporter.copy(lambda status: None)
            assert exporter.is_copied
            list(exporter.finish())
        finally:
            exporter.close()
    assert steps == ["second is prepared", "first", "committed"]
    rows = exported_rows(tmp_path / "copy", f"{schema}.nokey")
    assert sorted(row["a"] for row in rows) == [1, 2, 7, 9]
