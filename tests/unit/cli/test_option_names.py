"""Messages of the command line name its own options, and not the arguments of Python."""

from __future__ import annotations

import pytest

from replica.cli import make_parser
from replica.cli.option_names import named_as_given


@pytest.mark.parametrize(
    ("arguments", "message", "shown"),
    [
        (
            "copy DSN --to d --tables s.t",
            "error: tables: no table matches 's.t': a copy cannot begin",
            "error: --tables: no table matches 's.t': a copy cannot begin",
        ),
        # It is in the DSN.
        ("copy DSN?tables=s.t --to d", "error: tables: no table", "error: tables: no table"),
        (
            "copy DSN --to d",
            "error: s.t: no key: set snapshot_locking='rows', or leave it out with exclude_tables=",
            "error: s.t: no key: set snapshot_locking=rows (behind a ? in the DSN), or leave it out with "
            "--exclude-tables",
        ),
        ("tail DSN --start 0-1-2", "error: start: no GTID set", "error: --from: no GTID set"),
        ("decode a --start 9", "error: start: 9 is after the end", "error: --start: 9 is after the end"),
        ("tail DSN", "error: remove it to begin at start=", "error: remove it to begin at --from"),
        ("tail DSN", "error: set tables='s.*'", "error: set --tables 's.*'"),
        ("spark mirror a b --tables s.t", "error: tables: none", "error: --tables: none"),
        # Spark's names of its source's options.
        ("spark mirror a b --tables ,", "error: includeTables: none", "error: --tables: none"),
        ("spark mirror a b --seed x", "error: seed: must be", "error: --seed: must be"),
        ("spark mirror a b", "error: exclude them, or give seed=", "error: exclude them, or give --seed"),
        ("spark mirror a b --start x", "error: startingOffsets: no", "error: --start: no"),
        ("spark mirror a b --server-id 0", "error: serverId: no", "error: --server-id: no"),
        ("spark mirror a b --option serverId=0", "error: serverId: no", "error: serverId: no"),
        # Not options: SQL, a server's words, and what the command has no option for.
        ("tail DSN", "error: SET GLOBAL gtid_mode='ON'", "error: SET GLOBAL gtid_mode='ON'"),
        ("copy DSN --to d", "error: go on at start=", "error: go on at start="),
        ("tail DSN --server-id x", "warning: server_id: no", "warning: --server-id: no"),
        ("relay mysql://h/?tables=a.b d", "error: 'mysql://h/?tables=a.b'", "error: 'mysql://h/?tables=a.b'"),
    ],
)
def test_a_message_names_the_options_of_the_command(arguments: str, message: str, shown: str) -> None:
    options = make_parser().parse_args(arguments.split())
    assert named_as_given(message, options) == shown
