"""The files of Spark's file sink, as Spark itself finds them."""

from __future__ import annotations

import json
from pathlib import Path


def sink_files(folder: Path) -> list[str]:
    """The paths of the files that the sink has committed; a killed task may have left others."""
    names: set[str] = set()
    for path in (folder / "_spark_metadata").iterdir():
        if path.name[0] != ".":
            entries = [json.loads(line) for line in path.read_text().splitlines()[1:]]
            names |= {entry["path"].removeprefix("file://") for entry in entries if entry["action"] == "add"}
    return sorted(names)
