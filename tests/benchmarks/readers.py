"""One reader over one log, as a process of its own: `python -m tests.benchmarks.readers NAME JSON [--profile]`.

Each reader decodes every value of every row, verifies checksums where it can, and keeps nothing. What the process
prints is one JSON object: `rows` (row changes), `seconds` (from opening the log to its end, without the imports),
`cpu_seconds` (the processor time of this process in the meantime) and `peak_kib` (the most memory that was resident).
Packages are imported by the reader that needs them, so that a process pays for its own alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

# What a reader is told: path, size and tables of the log; for live ones binlog, host, port, user and password.
Setting = Mapping[str, Any]
# By time.perf_counter() and by time.process_time().
Moment = tuple[float, float]
# Returns the number of row changes, and when reading began.
Reader = Callable[[Setting], tuple[int, Moment]]

SERVER_ID = 4711


def now() -> Moment:
    return time.perf_counter(), time.process_time()


def nothing(setting: Setting) -> tuple[int, Moment]:
    """The interpreter alone."""
    return 0, now()


def import_ours(setting: Setting) -> tuple[int, Moment]:
    """The interpreter and our package."""
    import importlib

    importlib.import_module("replica")
    return 0, now()


def _import_lazy(*modules: str) -> None:
    """Import what the package would only import at its first call, within the time of reading."""
    import importlib

    for module in modules:
        importlib.import_module(module)


def ours_from_file(setting: Setting) -> tuple[int, Moment]:
    _import_lazy("replica.files.binlog_file")
    from replica import RowsEvent, open_binlog

    began = now()
    rows = 0
    with open_binlog(setting["path"], tables=setting.get("wanted")) as log:
        for event in log:
            if isinstance(event, RowsEvent):
                rows += len(event.rows)  # type: ignore[attr-defined]
    return rows, began


def ours_live(setting: Setting) -> tuple[int, Moment]:
    return _live(setting)


def ours_opening_live(setting: Setting) -> tuple[int, Moment]:
    """Open the stream, and close it before its first event."""
    import asyncio

    _import_lazy("replica.stream")
    from replica import BinlogPosition, connect

    async def read() -> None:
        async with connect(**_login(setting), tls="disabled", start=BinlogPosition(setting["binlog"], 4)):
            pass

    began = now()
    asyncio.run(read())
    return 0, began


def ours_live_in_sync(setting: Setting) -> tuple[int, Moment]:
    """Without asyncio: ``for event in stream``."""
    _import_lazy("replica.stream", "replica.sync")
    from replica import BinlogPosition, RowsEvent
    from replica.sync import connect

    began = now()
    rows = 0
    start, end = (BinlogPosition(setting["binlog"], place) for place in (4, setting["end"]))
    options = _login(setting) | {"tls": "disabled"}
    with connect(**options, start=start, stop=end) as stream:
        for event in stream:
            if isinstance(event, RowsEvent):
                rows += len(event.rows)  # type: ignore[attr-defined]
    return rows, began


def ours_live_over_tls(setting: Setting) -> tuple[int, Moment]:
    return _live(setting, tls="required")


def ours_live_with_zlib(setting: Setting) -> tuple[int, Moment]:
    return _live(setting, compression="zlib")


def _live(setting: Setting, **given: Any) -> tuple[int, Moment]:
    import asyncio

    _import_lazy("replica.stream")
    from replica import BinlogPosition, RowsEvent, connect

    async def read() -> int:
        rows = 0
        start, end = (BinlogPosition(setting["binlog"], place) for place in (4, setting["end"]))
        options = _login(setting) | {"tls": "disabled"} | given
        async with connect(**options, start=start, stop=end) as stream:
            async for event in stream:
                if isinstance(event, RowsEvent):
                    rows += len(event.rows)  # type: ignore[attr-defined]
        return rows

    began = now()
    return asyncio.run(read()), began


def ours_in_columns(setting: Setting) -> tuple[int, Moment]:
    """One table after the other, as RecordBatches."""
    return _columns(setting, workers=1)


def ours_in_columns_by_two(setting: Setting) -> tuple[int, Moment]:
    """The same by two processes."""
    return _columns(setting, workers=2)


def _columns(setting: Setting, workers: int) -> tuple[int, Moment]:
    _import_lazy("replica.files.binlog_file", "replica.arrow")
    if workers > 1:
        _import_lazy("replica.files.arrow_sections", "replica.arrow.streams")
    from replica import open_binlog

    began = now()
    rows = 0
    for table in setting["tables"]:
        with open_binlog(setting["path"]) as log:
            rows += sum(batch.num_rows for batch in log.arrow(table=table, workers=workers))
    return rows, began


def ours_as_text(setting: Setting) -> tuple[int, Moment]:
    """``mysql-replica decode``; rows are not counted."""
    return _text(setting, workers=1)


def ours_as_text_by_two(setting: Setting) -> tuple[int, Moment]:
    """The same by two processes."""
    return _text(setting, workers=2)


def _text(setting: Setting, workers: int) -> tuple[int, Moment]:
    _import_lazy("replica.cli.decode")
    from replica.cli import main as run

    began = now()
    if run(["decode", "--workers", str(workers), "--output", "/dev/null", setting["path"]]):
        raise ValueError("decode has failed")
    return 0, began


def ours_in_tuples(setting: Setting) -> tuple[int, Moment]:
    """One table after the other, as tuples: what `ours_in_columns` is measured against."""
    _import_lazy("replica.files.binlog_file")
    began = now()
    rows = sum(ours_from_file({**setting, "wanted": [table]})[0] for table in setting["tables"])
    return rows, began


def ours_without_tables(setting: Setting) -> tuple[int, Moment]:
    """A filter that selects no table of the log."""
    return ours_from_file({**setting, "wanted": ["no_such_schema.*"]})


def header_walk(setting: Setting) -> tuple[int, Moment]:
    """The least that a reader in Python can do: each event's header, and its CRC32."""
    from struct import Struct
    from zlib import crc32

    began = now()
    unpack = Struct("<9xI").unpack_from
    rest, damaged = b"", 0
    with Path(setting["path"]).open("rb") as file:
        file.seek(4)
        while chunk := file.read(1 << 20):
            data = memoryview(rest + chunk)
            position, size = 0, len(data)
            while position + 19 <= size:
                end = position + unpack(data, position)[0]
                if end > size:
                    break
                damaged += crc32(data[position : end - 4]) != int.from_bytes(data[end - 4 : end], "little")
                position = end
            rest = bytes(data[position:])
    if rest or damaged:
        raise ValueError(f"{damaged} events with a wrong checksum, {len(rest)} bytes left over")
    return 0, began


def python_mysql_replication(setting: Setting) -> tuple[int, Moment]:
    """It leaves the strings in JSON as bytes."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.event import RotateEvent
    from pymysqlreplication.row_event import RowsEvent

    began = now()
    rows = 0
    stream = BinLogStreamReader(
        # Without TLS, as all others.
        connection_settings={**_login(setting), "ssl_disabled": True},
        server_id=SERVER_ID,
        log_file=setting["binlog"],
        log_pos=4,
        resume_stream=True,
        blocking=False,
        verify_checksum=True,
        enable_logging=False,
    )
    for event in stream:
        if isinstance(event, RowsEvent):
            rows += len(event.rows)
        elif isinstance(event, RotateEvent) and event.next_binlog != setting["binlog"]:
            break
    stream.close()
    return rows, began


def asyncmy(setting: Setting) -> tuple[int, Moment]:
    """It skips checksums and asks information_schema for each table map."""
    import asyncio

    from asyncmy import Connection
    from asyncmy.replication import BinLogStream
    from asyncmy.replication.events import RotateEvent
    from asyncmy.replication.row_events import RowsEvent

    async def read() -> int:
        rows = 0
        control = Connection(**_login(setting))
        await control.connect()
        stream = BinLogStream(
            Connection(**_login(setting)),
            control,
            SERVER_ID,
            master_log_file=setting["binlog"],
            master_log_position=4,
            resume_stream=True,
            blocking=False,
        )
        async for event in stream:
            if isinstance(event, RowsEvent):
                rows += len(event.rows)
            elif isinstance(event, RotateEvent) and event.next_binlog != setting["binlog"]:
                break
        await stream.close()
        await control.ensure_closed()
        return rows

    began = now()
    return asyncio.run(read()), began


def _login(setting: Setting) -> dict[str, Any]:
    return {name: setting[name] for name in ("host", "port", "user", "password")}


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        reader.__name__: reader
        for reader in (
            nothing,
            import_ours,
            ours_from_file,
            ours_live,
            ours_opening_live,
            ours_live_in_sync,
            ours_live_over_tls,
            ours_live_with_zlib,
            ours_in_columns,
            ours_in_columns_by_two,
            ours_as_text,
            ours_as_text_by_two,
            ours_in_tuples,
            ours_without_tables,
            header_walk,
            python_mysql_replication,
            asyncmy,
        )
    }
)


def peak_kib() -> int:
    """The most that was resident. Not ru_maxrss, which begins with what the parent had when it forked."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main(name: str, setting: str, *options: str) -> None:
    reader = READERS[name]
    if "--profile" in options:
        profile(reader, json.loads(setting))
        return
    rows, began = reader(json.loads(setting))
    seconds, cpu_seconds = (end - begin for end, begin in zip(now(), began, strict=True))
    found = {"rows": rows, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_kib": peak_kib()}
    print(json.dumps(found))


def profile(reader: Reader, setting: Setting, entries: int = 15) -> None:
    """Print the functions that take most of the time by themselves, and their shares of it."""
    import cProfile
    import pstats

    # Imports are not what is asked for.
    import_ours(setting)
    profiler = cProfile.Profile()
    profiler.runcall(reader, setting)
    stats: Any = pstats.Stats(profiler)
    ordered = sorted(stats.stats.items(), key=lambda entry: entry[1][2], reverse=True)
    for (file, line, function), (_, calls, own_seconds, _, _) in ordered[:entries]:
        place = function if file == "~" else f"{Path(file).name}:{line} {function}"
        print(f"  {own_seconds / stats.total_tt:6.1%} {calls:>10,} calls  {place}")


if __name__ == "__main__":
    main(*sys.argv[1:])
