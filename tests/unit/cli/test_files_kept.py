"""``decode`` and ``stats`` do not write over a file that they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from replica.cli import main
from tests.support.log_builder import write_logs


@pytest.mark.parametrize("command", [("decode", "--output"), ("stats", "--html")])
@pytest.mark.parametrize("source", ["{}", "{}/bin.*", "{}/bin.index", "{}/bin.999998"])
def test_a_file_that_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, str], source: str
) -> None:
    """Only its own name was compared: of a folder, an index file and a pattern the log was gone."""
    paths = write_logs(tmp_path)
    before = [path.read_bytes() for path in paths]
    (tmp_path / "bin.index").write_text("".join(f"{path.name}\n" for path in paths))
    name, option = command
    assert main([name, source.format(tmp_path), option, str(paths[0])]) == 2
    assert f"{option}: {paths[0]} is also an input file" in capsys.readouterr().err
    assert [path.read_bytes() for path in paths] == before
    assert main([name, source.format(tmp_path), option, str(tmp_path / "new")]) == 0
