"""Real logs rendered as text, against what mysqlbinlog 9.7 and mariadb-binlog 10.11 print of them: every byte."""

from __future__ import annotations

import gzip
import io
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import UnsupportedEventError
from replica.files.binlog_file import open_binlog
from replica.mysqlbinlog.event_text import TextRenderer, render_text
from replica.mysqlbinlog.values import Flavor
from tests.support.places import CORPUS, corpus_index

FLAVORS: dict[str, Flavor] = {"mysqlbinlog97": "mysql", "mariadb_binlog_10.11": "mariadb"}
# The text follows mariadb-binlog 11.8, which prints the session of a GTID event; 10.11 does not.
_GTID_THREAD = re.compile(rb"(\tGTID .*) thread_id=\d+$")
# The tool writes the file of LOAD DATA to its working directory, and names it; ours has the statement as it was.
_LOADED_FILE = re.compile(rb"LOAD DATA (LOCAL INFILE 'll/SQL_LOAD_MB-\w+-\w+'|INFILE 'big_file\.dat')")

OLD_VERSION = "binlog version 3 (MySQL 4.0 and 4.1), which is refused with an error that says so"
# Where the text differs, and why.
EXCEPTIONS = {
    "mariadb-test-data-10.11.19/suite_binlog__binlog_old_version_4_1.000001": OLD_VERSION,
    "mariadb-test-data-10.11.19/trunc_binlog.000001": OLD_VERSION,
}


def _records() -> list[dict[str, Any]]:
    return [record for record in corpus_index() if record["best_oracle"]]


def _name(record: dict[str, Any]) -> str:
    return str(record["file"]).removeprefix("files/")


def rendered(path: Path, flavor: Flavor) -> bytes:
    """The file's text. Checksums are not verified, as the tools do not by default."""
    output = io.BytesIO()
    renderer = TextRenderer(output, flavor=flavor)
    with open_binlog(path, verify_checksum=False, cells=renderer.cells) as log:
        render_text(log.raw_events(), renderer)
    return output.getvalue()


def compared(text: bytes) -> list[bytes]:
    lines = _LOADED_FILE.sub(b"LOAD DATA", text).split(b"\n")
    return [_GTID_THREAD.sub(rb"\1", line) for line in lines]


def differences(record: dict[str, Any]) -> tuple[int, list[tuple[bytes | None, bytes | None]]]:
    """The number of lines compared, and each pair of lines that differ: ours and the tool's."""
    oracle = str(record["best_oracle"])
    text = rendered(CORPUS / record["file"], FLAVORS[oracle])
    ours = compared(text)
    theirs = compared(gzip.decompress((CORPUS / record["oracle"][oracle]["file"]).read_bytes()))
    assert ours, record["file"]
    pairs = list(zip_longest(ours, theirs))
    return len(pairs), [pair for pair in pairs if pair[0] != pair[1]]


@pytest.mark.thorough
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real logs is not here")
def test_the_text_of_real_logs_is_the_reference_tools() -> None:
    files = lines = 0
    different = {}
    for record in _records():
        if _name(record) in EXCEPTIONS:
            with pytest.raises(UnsupportedEventError, match="version 3"):
                rendered(CORPUS / record["file"], FLAVORS[str(record["best_oracle"])])
            continue
        count, pairs = differences(record)
        files, lines = files + 1, lines + count
        if pairs:
            different[_name(record)] = pairs[:3]
    print(f"{files} files, {lines} lines compared; exceptions: {EXCEPTIONS}")
    assert different == {}
    assert files > 150


def test_every_exception_is_a_file_of_the_corpus() -> None:
    names = {_name(record) for record in _records()}
    assert not names or names >= EXCEPTIONS.keys()
