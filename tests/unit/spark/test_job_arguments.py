"""The command lines of jobs on Spark: the options of the source, and errors before Spark starts."""

from __future__ import annotations

import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from protocol.errors import ConfigurationError
from replica.cli import main
from replica.spark.jobs import changelog, history, mirror, progress, resync
from replica.spark.jobs.job_arguments import (
    Job,
    add_run_arguments,
    add_source_arguments,
    pace_from,
    source_options,
    state_from,
)
from replica.spark.jobs.spark_session import Pace, State, absolute, spool_of, state_of
from replica.spark.source_options import parse_options
from tests.support.places import ROOT


def parse(*arguments: str) -> Namespace:
    parser = ArgumentParser(exit_on_error=False)
    add_source_arguments(parser)
    add_run_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mysql://re%40pl@h:3307"], {"host": "h", "port": "3307", "user": "re@pl"}),
        (["mariadb://u@[::1]/"], {"host": "::1", "user": "u"}),
        (["/logs/binlog.*"], {"path": "/logs/binlog.*"}),
        (
            [
                "mysql://u@h",
                "--password-env",
                "PW",
                "--tables",
                "a.*",
                "--exclude-tables",
                "a.b",
                "--server-id",
                "7",
            ],
            {
                "host": "h",
                "user": "u",
                "passwordEnv": "PW",
                "includeTables": "a.*",
                "excludeTables": "a.b",
                "serverId": "7",
            },
        ),
        (["mysql://u@h", "--start", "earliest"], {"host": "h", "user": "u", "startingOffsets": "earliest"}),
        (
            ["mysql://u@h", "--start", '{"version": 1}'],
            {"host": "h", "user": "u", "startingOffsets": '{"version": 1}'},
        ),
        (
            ["mysql://u@h", "--start", "2026-01-31T12:00:00+00:00"],
            {"host": "h", "user": "u", "startingTimestamp": "2026-01-31T12:00:00+00:00"},
        ),
        (["mysql://u@h", "--start", "0-1-100"], {"host": "h", "user": "u", "startingGtidSet": "0-1-100"}),
        (
            ["mysql://u@h", "--option", "tls=required", "--option", "includeTables=a.b=c"],
            {"host": "h", "user": "u", "tls": "required", "includeTables": "a.b=c"},
        ),
    ],
)
def test_a_source(arguments: list[str], expected: dict[str, str]) -> None:
    assert source_options(parse(*arguments)) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mysql://u:pw@h"], "password"),
        (["mysql://h"], "user is missing"),
        (["mysql://u@h:x"], "SOURCE.*port"),
        (["mysql://u@h", "--start", "binlog.000003:154"], "--start: must be latest"),
        (["mysql://u@h", "--start", "2026-01-31"], "--start: 2026-01-31 is a date"),
        (["mysql://u@h", "--start", "2026-01-31T12:00:00"], "--start: .* no time zone"),
        (["mysql://u:pw#x@h"], "SOURCE.*port"),
        (["mysql://u@h/?tls=off"], "--option"),
        (["mysql://u@h/shop"], "SOURCE.*database"),
        (["mysql://u@h", "--option", "tls"], "NAME=VALUE"),
    ],
)
def test_what_is_no_source(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        source_options(parse(*arguments))
    assert "pw" not in str(caught.value)


def test_every_argument_is_an_option_of_the_source() -> None:
    given = parse(
        *[
            "mysql://u@h:1",
            "--tables",
            "a.b",
            "--exclude-tables",
            "a.c",
            "--server-id",
            "7",
            "--start",
            "latest",
        ]
    )
    options = parse_options(source_options(given))
    assert (options.connection["host"], options.connection["server_id"]) == ("h", "7")
    assert options.settings.tables == ("a.b",)
    assert options.starting == {"startingOffsets": "latest"}


@pytest.mark.parametrize(
    ("target", "folder", "spool", "expected"),
    [
        ("/lake/t", None, None, State("/lake/t/_state/checkpoint")),
        ("file:///lake/t/", None, None, State("/lake/t/_state/checkpoint")),
        ("/lake/t", "/state", None, State("/state/checkpoint")),
        ("s3a://b/t", None, "/spool", State("s3a://b/t/_state/checkpoint", "/spool")),
        ("s3a://b/t", "file:/state", None, State("/state/checkpoint")),
    ],
)
def test_where_the_state_is(target: str, folder: str | None, spool: str | None, expected: State) -> None:
    assert state_of(target, folder, spool) == expected


@pytest.mark.parametrize(
    ("target", "state", "local", "cluster"),
    [
        (
            "/lake/t",
            State("/lake/t/_state/checkpoint"),
            "/lake/t/_state/spool",
            "file:///lake/t/_state/spool",
        ),
        ("s3://b/t", State("s3://b/t/_state/checkpoint", "/spool"), "/spool", "/spool"),
        ("s3://b/t", State("/state/checkpoint", "/spool"), "/spool", "/spool"),
        ("/lake/t", None, "/lake/t/_state/spool", "file:///lake/t/_state/spool"),
    ],
)
def test_where_the_spool_is(target: str, state: State | None, local: str, cluster: str) -> None:
    assert spool_of(target, state, is_local=True) == local
    assert spool_of(target, state, is_local=False) == cluster


def test_queries_that_share_a_target_have_a_spool_each() -> None:
    sources = [{"sourceName": "a"}, {"sourceName": "b/.."}]
    states = [state_of("s3://b/t", source=source) for source in sources] + [State("/state/checkpoint")]
    assert states[1].checkpoint == "s3://b/t/_state/b%2F../checkpoint"
    spools = {spool_of("s3://b/t", state, is_local=False) for state in states}
    assert len(spools) == 3
    assert all(spool.startswith("s3://b/t/_state/spool-") for spool in spools)


def test_a_spool_is_on_this_machine() -> None:
    with pytest.raises(ConfigurationError, match="is not a folder of this machine"):
        spool_of("s3a://bucket/t", state_of("s3a://bucket/t"), is_local=True)


def test_paths_are_the_same_for_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("t") == absolute("file:t") == str(tmp_path / "t")
    assert absolute("hdfs://n/t") == "hdfs://n/t"
    options = parse("/logs", "--state", "s", "--once", "--interval", "5 seconds")
    assert state_from(options, "t") == State(f"{tmp_path}/s/checkpoint")
    assert pace_from(options) == Pace(True, "5 seconds")


def test_the_command_line_tells_of_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "changelog", "mysql://u:secret@h", "/t"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("mysql-replica: error: SOURCE: leave the password out")
    assert "secret" not in told
    with pytest.raises(SystemExit):
        main(["spark", "changelog", "--help"])
    assert "--password-file" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["spark"])


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("pyspark", [], "spark"),
        ("pyarrow", [], "spark"),
        ("deltalake", ["--format", "delta"], "delta"),
    ],
)
@pytest.mark.parametrize("module", ["replica.cli", "replica.spark.jobs.changelog"])
def test_a_missing_extra_is_named(missing: str, arguments: list[str], extra: str, module: str) -> None:
    words = [*(["spark", "changelog"] if module == "replica.cli" else []), "/logs", "/nowhere/t", *arguments]
    run = (
        f"import sys, runpy; sys.modules[{missing!r}] = None; sys.argv = ['x', *{words!r}]\n"
        + ("from replica.cli import main; raise SystemExit(main())" if module == "replica.cli" else "")
        + (f"runpy.run_module({module!r}, run_name='__main__')" if module != "replica.cli" else "")
    )
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'mysql-replica[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("job", [changelog.JOB, mirror.JOB, history.JOB, resync.JOB, progress.JOB])
def test_the_target_stands_by_its_place_or_has_a_name(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """`changelog` took it by its place only, and the others by --target only."""
    source = [] if job in (resync.JOB, progress.JOB) else ["binlog.000001"]
    more = ["--table", "a.t"] if job is resync.JOB else ["--debug"]
    for arguments in (
        [*source, "/lake", *more],
        [*source, *more, "/lake"],
        [*source, *more, "--target", "/lake"],
        ["--target=/lake", *source, *more],
        ["--target", "/lake", *more, *source],
    ):
        assert parsed(job, arguments).target == "/lake"
    for arguments, text in (
        ([*source, *more], "required: .*TARGET"),
        ([*source, *more, "--target", "/lake", "/lake"], "once|unrecognized"),
        ([*source, "/lake", *more, "--target", "/lake"], "TARGET: give it once"),
    ):
        with pytest.raises(SystemExit):
            parsed(job, arguments)
        assert re.search(text, capsys.readouterr().err), arguments


def parsed(job: Job, arguments: list[str]) -> Namespace:
    parser = ArgumentParser()
    job.add_arguments(parser)
    parser.add_argument("--debug", action="store_true")
    return parser.parse_args(arguments)
