"""Runs the server tests on versions that `make test` has no servers of: `python -m tests.tools.versions [IMAGE ...]`.

Each stands in for the server of `make test` that is most like it (`--in-place-of`), and `docker/images/build.sh`
makes its image. Left out are Spark, the tests of what one version's own tools print, of passwords and of TLS, which
the images differ in, and the tests that `STAND_INS` names. The last line says which versions passed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.support.places import ROOT


@dataclass(frozen=True)
class StandIn:
    """`server` is the name in whose place the image stands; `left_out` has tests of what that version alone does."""

    server: str
    left_out: tuple[str, ...] = ()


STAND_INS: Mapping[str, StandIn] = MappingProxyType(
    {
        "mysql:8.4": StandIn("mysql:9.7"),
        "mysql:8.0": StandIn("mysql:9.7"),
        "mysql:5.7": StandIn(
            "mysql:5.6",
            (
                # 5.7 has exact GTIDs: no locks are needed, and no file of the log is read before the copy.
                "test_a_table_without_a_key_needs_a_way_to_be_exact",
                "test_a_copy_tells_at_once_all_that_is_in_its_way",
                "test_beside_a_statement_the_changes_of_the_log_file_come_first",
                "test_rows_that_the_log_does_not_tell_wait_for_the_next_file",
                # Bytes in a document have one of several types, and print with it.
                "test_a_row_as_read_equals_the_row_as_logged",
                "test_random_tables_are_undone_and_redone",
                "test_incomplete_row_images_are_redone",
                # Prepared XA transactions outlive their sessions, and hold the test's tables.
                "test_killed_and_cut_again_and_again",
            ),
        ),
        # Its log lacks a session's explicit_defaults_for_timestamp, and its default is OFF.
        "mariadb:10.6": StandIn("mariadb:10.11", ("test_one_of_each",)),
    }
)
_LEFT_OUT_MODULES = (
    *(
        "spark",
        "object_store",
        "text_oracle",
        "event_table",
        "images",
        "binlog_server",
        "encrypted_logs",
        "login",
    ),
    *(
        "readme",
        "cli",
        "option_file",
        "stats",
        "container",
        "examples",
        "sinks",
        "migrating",
        "online_schema",
    ),
)


def run(image: str, options: list[str]) -> bool:
    """Whether the tests pass. ``options`` are pytest's."""
    stand_in = STAND_INS[image]
    subprocess.run([ROOT / "docker/images/build.sh", image], check=True)
    left_out = "".join(f" and not test_{name}" for name in _LEFT_OUT_MODULES)
    left_out += "".join(f" and not {name}" for name in stand_in.left_out)
    version = stand_in.server.partition(":")[2]
    chosen = ("--in-place-of", f"{stand_in.server}={image}", "-k", f"{version}{left_out}")
    command = [sys.executable, "-m", "pytest", "tests/server", "--quiet", *chosen, *options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    images = [argument for argument in arguments if argument in STAND_INS]
    options = [argument for argument in arguments if argument not in images]
    outcomes: dict[bool, list[str]] = {True: [], False: []}
    for image in images or STAND_INS:
        print(f"{image} in place of {STAND_INS[image].server}", flush=True)
        outcomes[run(image, options)].append(image)
    print(f"passed: {', '.join(outcomes[True]) or 'none'}; failed: {', '.join(outcomes[False]) or 'none'}")
    return 1 if outcomes[False] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
