"""Counting rows without values finds as many rows as reading, for every type and image, and the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replica
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import RowsEvent
from protocol.constants import EventType
from protocol.errors import DecodeError
from protocol.rows.compiler import Image, RowCompiler, RowReader
from protocol.rows.counting import RowCountCompiler
from tests.support import binlog_encoder as encoder
from tests.support.log_builder import numbered_log
from tests.support.random_logs import KINDS, random_form, random_rows, random_table
from tests.support.served import PASSWORD, USER, serving, write_mysql_files


def rows_found(raw: list[bytes], decoder: EventDecoder) -> list[int | str]:
    """The number of rows of each rows event, or the class of the error."""
    found: list[int | str] = []
    for one in raw:
        try:
            event = decoder.decode(one)
        except DecodeError as error:
            found.append(type(error).__name__)
        else:
            if isinstance(event, RowsEvent):
                found.append(len(event.rows))  # type: ignore[attr-defined]
    return found


@given(seed=st.integers(0, 2**64), kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12))
def test_as_many_as_reading_finds(seed: int, kinds: list[str]) -> None:
    rng = random.Random(seed)
    table = random_table(rng, kinds)
    version = "11.8.6-MariaDB-log" if table.mariadb else "9.7.4"
    raw = [encoder.format_description(version, checksum=False)]
    raw.append(encoder.event(EventType.TABLE_MAP, table.table_map, checksum=False))
    for _ in range(5):
        form = random_form(rng, table)
        body = random_rows(rng, table, form, rng.randint(0, 9), nulls=rng.choice([0, 0.3, 1]))
        if rng.random() < 0.3:
            body = body[: rng.randrange(max(len(body) - 4, 9), len(body) + 1)]
        raw.append(encoder.event(form.event, body, checksum=False))
        raw.insert(-1, raw[1])
    counted = rows_found(raw, EventDecoder(row_compiler=RowCountCompiler()))
    read = rows_found(raw, EventDecoder())
    for mine, theirs in zip(counted, read, strict=True):
        # Counting does not notice an error inside a value.
        assert mine == theirs or isinstance(theirs, str)


def noting(make: Callable[..., RowReader], readers: list[RowReader]) -> Callable[..., RowReader]:
    """The compiler's method, which also adds the readers to a list."""

    def reader(*images: Image) -> RowReader:
        made = make(*images)
        readers.append(made)
        return made

    return reader


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_value_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code compiled for counting refers to no function that reads a value."""
    made = {}
    for compiler in (RowCompiler(None), RowCountCompiler(None)):
        rng = random.Random(kind)
        table = random_table(rng, [kind, kind])
        form = random_form(rng, table)
        readers: list[RowReader] = []
        monkeypatch.setattr(compiler, "reader", noting(compiler.reader, readers))
        decoder = EventDecoder(row_compiler=compiler)
        version = "11.8.6-MariaDB-log" if table.mariadb else "9.7.4"
        decoder.decode(encoder.format_description(version, checksum=False))
        decoder.decode(encoder.event(EventType.TABLE_MAP, table.table_map, checksum=False))
        decoder.decode(encoder.event(form.event, random_rows(rng, table, form, 3, nulls=0.3), checksum=False))
        names = [name for reader in readers for name in getattr(reader, "__globals__", {})]
        made[type(compiler)] = [name for name in names if name.startswith(("convert", "constant"))]
    assert made[RowCountCompiler] == []
    assert made[RowCompiler] or kind not in ("NEWDECIMAL", "DATE", "JSON")


def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log(3).data)
    with replica.open_binlog(path, row_values=False) as log:
        events = [event for event in log if isinstance(event, replica.WriteRowsEvent)]
    assert [event.rows for event in events] == [[()]] * 3
    assert [str(event.table) for event in events] == ["s.t"] * 3


async def test_in_a_stream(tmp_path: Path) -> None:
    write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        options = {
            "start": "earliest",
            "stop": "now",
            "row_values": False,
            "on_schema_mismatch": "positional",
        }
        dsn = f"mysql://{USER}:{quote(PASSWORD)}@127.0.0.1:{server.port}/?tls=disabled"
        async with replica.connect(dsn, **options) as stream:  # type: ignore[arg-type]
            rows = [event.rows async for event in stream if isinstance(event, replica.WriteRowsEvent)]
    assert rows == [[()]] * 6


def test_it_is_a_boolean(tmp_path: Path) -> None:
    with pytest.raises(replica.ConfigurationError, match="row_values"):
        replica.connect("mysql://u@h", row_values=7)  # type: ignore[arg-type]
