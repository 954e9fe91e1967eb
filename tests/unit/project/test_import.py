"""What `import replica` loads, and what it leaves to those who need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import replica
from tests.support.log_builder import numbered_log
from tests.support.places import ROOT

# Each takes longer to import than the whole of what reading a file takes of ours, or is of no use there.
NOT_FOR_FILES = (
    "asyncio",
    "ssl",
    "socket",
    "cryptography",
    "hashlib",
    "logging",
    "traceback",
    "tempfile",
    "pathlib",
    "difflib",
    "dataclasses",
    "inspect",
    "linecache",
    "replica.schemas",
    "replica.sql",
    "replica.stream",
    "replica.config.options",
)


def test_reading_a_file_loads_no_network_and_no_ciphers(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log().data)
    script = f"""if True:
        import sys
        # An editable install has the interpreter load some of them at its start.
        before = set(sys.modules)
        import replica
        with replica.open_binlog({str(path)!r}, tables="s.*", start={numbered_log().offsets[6]}) as log:
            events = list(log)
        print(len(events), *[name for name in {NOT_FOR_FILES} if name in sys.modules and name not in before])
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout.split() == [str(len(numbered_log().offsets) - 5)]


def test_opening_a_stream_generates_no_dataclass() -> None:
    """To generate the methods of one takes 0.6 ms of the first opening in a process."""
    script = """if True:
        import asyncio, dataclasses
        import replica, replica.stream
        from tests.support.scripted_log import Log, mysql, transaction
        from tests.support.socket_source import serving

        generated, generate = [], dataclasses.dataclass

        def note(**options):
            return lambda kind: generated.append(kind.__name__) or generate(**options)(kind)

        async def run():
            source = mysql(transaction(Log(), 1))
            async with serving(source), replica.connect(source.dsn, start="earliest") as stream:
                await anext(stream)

        dataclasses.dataclass = note
        asyncio.run(run())
        print(generated)
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert [name for name in replica.__all__ if getattr(replica, name, None) is None] == []
    assert set(replica.__all__) <= set(dir(replica))


def test_other_names_are_not() -> None:
    assert not hasattr(replica, "no_such_name")
    with pytest.raises(ImportError):
        from replica import no_such_name  # noqa: F401
