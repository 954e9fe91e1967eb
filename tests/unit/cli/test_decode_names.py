"""``decode -f sql`` of logs without column names: the CREATE TABLE in the same files tells them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from replica.cli import main
from tests.support.log_builder import LogBuilder

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Exit code, the lines of rows and statements, and messages of ``mysql-replica decode``."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        code = main(["decode", *map(str, arguments)])
        output, errors = capsysbinary.readouterr()
        words = ("INSERT", "DELETE", "(", "CREATE", "ALTER")
        return (
            code,
            [line for line in output.decode().splitlines() if line.startswith(words)],
            errors.decode(),
        )

    return run


def write(folder: Path, number: int, *steps: int | str) -> Path:
    """A log file with statements, and transactions that insert one INT each."""
    builder = LogBuilder()
    for sequence, step in enumerate(steps, number * 100 + 1):
        if isinstance(step, str):
            builder.statement(step)
        else:
            builder.transaction([step], sequence=sequence)
    path = folder / f"binlog.{number:06}"
    path.write_bytes(builder.data)
    return path


CREATE = "CREATE TABLE s.t (n INT)"


def test_the_statement_before_the_rows_tells_names(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, 1, CREATE, 1, "ALTER TABLE s.t CHANGE n m INT", 2)
    code, lines, errors = run(path, "-f", "sql")
    assert (code, errors) == (0, "")
    assert [line for line in lines if line.startswith(("INSERT", "("))] == [
        "INSERT INTO `s`.`t` (`n`) VALUES",
        "(1);",
        "INSERT INTO `s`.`t` (`m`) VALUES",
        "(2);",
    ]


def test_statements_of_an_earlier_file(run: Run, tmp_path: Path) -> None:
    files = write(tmp_path, 1, CREATE), write(tmp_path, 2, 7)
    code, lines, _ = run(*files, "-f", "sql")
    assert (code, lines[1:]) == (0, ["INSERT INTO `s`.`t` (`n`) VALUES", "(7);"])
    code, lines, _ = run(files[1], "--flashback", "--schema", write_empty(tmp_path))
    assert code == 1


def write_empty(folder: Path) -> str:
    (folder / "schema.json").write_text("{}")
    return f"{folder}/schema.json@binlog.000002:4"


def test_a_table_that_was_dropped_is_made_anew(run: Run, tmp_path: Path) -> None:
    drop = "DROP TABLE IF EXISTS s.t"
    path = write(tmp_path, 1, drop, CREATE, drop, "CREATE TABLE IF NOT EXISTS s.t (n INT)", 1)
    assert run(path, "-f", "sql")[1][-2:] == ["INSERT INTO `s`.`t` (`n`) VALUES", "(1);"]


def test_flashback(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, 1, CREATE, 1)
    assert run(path, "--flashback", "--force")[:2] == (0, ["DELETE FROM `s`.`t` WHERE `n` = 1 LIMIT 1;"])


@pytest.mark.parametrize(
    "statements",
    [
        (),
        ("CREATE TABLE s.other (n INT)",),
        ("CREATE TABLE s.t (n BIGINT)",),
        (CREATE, "ALTER TABLE s.t ADD x INT"),
        ("CREATE TABLE IF NOT EXISTS s.t (n INT)",),
        ("RENAME TABLE s.older TO s.t",),
        (CREATE, "RENAME TABLE s.older TO s.t"),
    ],
)
def test_names_that_no_statement_tells_are_an_error(
    run: Run, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    code, lines, errors = run(write(tmp_path, 1, *statements, 1), "-f", "sql")
    assert code == 1
    assert not any(line.startswith("INSERT") for line in lines)
    assert "no column names for s.t" in errors
    assert "CREATE TABLE" in errors


@pytest.mark.parametrize("numbers", [(1, 3), (2, 1)])
def test_files_that_are_no_part_of_a_log(run: Run, tmp_path: Path, numbers: tuple[int, int]) -> None:
    """A statement in the file that is not there may have renamed the column."""
    files = write(tmp_path, numbers[0], CREATE), write(tmp_path, numbers[1], 7)
    assert run(*files, "-f", "sql")[0] == 1


@pytest.mark.parametrize("name", ["-", "a copy", "binlog"])
def test_a_file_alone_may_have_any_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write(tmp_path, 1, CREATE, 7)
    if name == "-":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    else:
        name = str(path.rename(tmp_path / name))
    code, lines, _ = run(name, "-f", "sql")
    assert (code, lines[1:]) == (0, ["INSERT INTO `s`.`t` (`n`) VALUES", "(7);"])


def test_generated_columns_are_not_written(run: Run, tmp_path: Path) -> None:
    """No statement may give them a value."""
    path = write(tmp_path, 1, "CREATE TABLE s.t (n INT GENERATED ALWAYS AS (1 + 1) STORED)", 2)
    code, lines, _ = run(path, "-f", "sql")
    assert (code, lines[-2:]) == (0, ["INSERT INTO `s`.`t` () VALUES", "();"])


def test_other_formats_have_numbers(run: Run, tmp_path: Path) -> None:
    """As mysqlbinlog prints it."""
    code, _, _ = run(write(tmp_path, 1, CREATE, 1), "-f", "json")
    assert code == 0
