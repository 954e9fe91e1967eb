"""``decode --workers`` and ``stats --workers``: the output of one process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replica.cli import main
from replica.demo import recorded_log

Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, output and messages of a command."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object) -> tuple[int, bytes, str]:
        code = main([*map(str, arguments)])
        output, errors = capsysbinary.readouterr()
        return code, output, errors.decode()

    return run


def test_text(run: Run) -> None:
    with recorded_log() as path:
        for others in ([], ["--hexdump"], ["--start", 4], ["--tables", "shop.orders"]):
            assert run("decode", "--workers", 2, *others, path) == run("decode", *others, path)
        for others in (["--format", "json"], ["--changes"]):
            code, _, errors = run("decode", "--workers", 2, *others, path)
            assert code == 2
            assert "--workers does not go together" in errors
        code, _, errors = run("decode", "--workers", 0, path)
        assert code == 2
        assert "workers: a number of processes" in errors


def test_statistics(run: Run) -> None:
    with recorded_log() as path:
        for others in ([], ["-f", "json"], ["--tables", "shop.orders"]):
            assert run("stats", "--workers", 2, *others, path) == run("stats", *others, path)
    code, _, errors = run("stats", "--workers", 2, "mysql://repl@127.0.0.1")
    assert code == 2
    assert "--workers needs files" in errors
