"""A DSN in the place of another argument: the error does not show its password."""

from __future__ import annotations

import pytest

import replica
from replica.cli import main

DSN = "mysql://repl:S3/cr#t@127.0.0.1:1"


@pytest.mark.parametrize(
    "arguments",
    [
        [DSN],
        ["tail", DSN, DSN],
        ["decode", "--output", DSN],
        ["serve", "folder", "--bind", DSN],
        ["tail", "mysql://repl@127.0.0.1:1", "--metrics", DSN],
        ["tail", "mysql://repl@127.0.0.1:1", "--metrics", DSN, "--debug"],
        ["tail", "mysql://repl@127.0.0.1:1", "mysql://repl:S3 cr#t@127.0.0.1:1"],
        ["tail", "mysql://repl@127.0.0.1:1", "--metrics", "mariadb://repl:S3 cr#t@127.0.0.1:1"],
        ["doctor", DSN],
    ],
)
def test_on_the_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    assert code == 2
    assert "error: " in said
    assert "cr#t" not in said


@pytest.mark.parametrize("host", [DSN, "repl:S3/cr#t@127.0.0.1", ["db1", "repl:S3/cr#t@db2"]])
def test_as_a_host(host: object) -> None:
    with pytest.raises(replica.ConfigurationError, match="host: a host alone") as caught:
        replica.connect(user="repl", host=host)  # type: ignore[arg-type]
    assert "cr#t" not in str(caught.value)
