"""Real logs rendered as text, against what mysqlbinlog 9.7 and mariadb-binlog 10.11 print of them.

All `# at` lines, header lines and `###` lines must be equal, in order. The run ends by printing the counts.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import UnsupportedEventError
from replica.files.binlog_file import open_binlog
from replica.mysqlbinlog.event_text import TextRenderer, render_text
from replica.mysqlbinlog.values import Flavor
from tests.support.places import CORPUS

FLAVORS: dict[str, Flavor] = {"mysqlbinlog97": "mysql", "mariadb_binlog_10.11": "mariadb"}
_COMPARED = re.compile(rb"# at \d|#\d{6} |###")
# The text follows mariadb-binlog 11.8, which prints the session of a GTID event; 10.11 does not.
_GTID_THREAD = re.compile(rb"(\tGTID .*) thread_id=\d+$")

OLD_VERSION = "binlog version 3 (MySQL 4.0 and 4.1), which is refused with an error that says so"
# Where the text differs, and why.
EXCEPTIONS = {
    "mariadb-test-data-10.11.19/suite_binlog__binlog_old_version_4_1.000001": OLD_VERSION,
    "mariadb-test-data-10.11.19/trunc_binlog.000001": OLD_VERSION,
}


def _records() -> list[dict[str, Any]]:
    index = CORPUS / "index.json"
    if not index.exists():
        return []
    records: list[dict[str, Any]] = json.loads(index.read_text())
    return [record for record in records if record["best_oracle"]]


def _name(record: dict[str, Any]) -> str:
    return str(record["file"]).removeprefix("files/")


@dataclass
class Counts:
    files: int = 0
    lines: int = 0
    different: int = 0


@pytest.fixture(scope="module")
def counts(request: pytest.FixtureRequest) -> Iterator[Counts]:
    total = Counts()
    yield total
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    words = f"{total.files} files, {total.lines} lines compared, {total.different} different"
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print(f"\nText against the reference tools: {words}.")
        for name, reason in EXCEPTIONS.items():
            print(f"  Except {name}: {reason}.")


def rendered(path: Path, flavor: Flavor) -> bytes:
    """The file's text. Checksums are not verified, as the tools do not by default."""
    output = io.BytesIO()
    renderer = TextRenderer(output, flavor=flavor)
    with open_binlog(path, verify_checksum=False, cells=renderer.cells) as log:
        render_text(log.raw_events(), renderer)
    return output.getvalue()


def compared(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if _COMPARED.match(line)]


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real logs is not here")
@pytest.mark.parametrize("record", _records(), ids=_name)
def test_the_text_of_a_real_log_is_the_reference_tools(record: dict[str, Any], counts: Counts) -> None:
    name, oracle = _name(record), str(record["best_oracle"])
    path, flavor = CORPUS / record["file"], FLAVORS[oracle]
    if name in EXCEPTIONS:
        with pytest.raises(UnsupportedEventError, match="version 3"):
            rendered(path, flavor)
        return
    ours = [_GTID_THREAD.sub(rb"\1", line) for line in compared(rendered(path, flavor))]
    theirs = compared(gzip.decompress((CORPUS / record["oracle"][oracle]["file"]).read_bytes()))
    pairs = list(zip_longest(ours, theirs))
    different = [pair for pair in pairs if pair[0] != pair[1]]
    counts.files += 1
    counts.lines += len(pairs)
    counts.different += len(different)
    assert different[:3] == []
    assert ours


def test_every_exception_is_a_file_of_the_corpus() -> None:
    names = {_name(record) for record in _records()}
    assert not names or names >= EXCEPTIONS.keys()
