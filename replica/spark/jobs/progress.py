"""``progress``: the tables of a job, where they are, what waits for them, and whether they are kept.

    mysql-replica spark progress --target /lake

    from replica.spark.jobs import mirror

    mirror.progress("/lake").to_pandas()

The job itself may run or not: this reads its state, which is that of its last micro-batch, or of a later merge.
"""

import json
import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from protocol.errors import ConfigurationError, ReplicaError
from replica.spark.jobs.job_arguments import Job, Note, add_target_argument, run_script
from replica.spark.jobs.spark_session import absolute, require_delta, storage_of

if TYPE_CHECKING:
    import pyarrow as pa

_NO_STORAGE: Final[Mapping[str, str]] = MappingProxyType({})
# Tables that are kept no longer, in one message.
_TOLD: Final = 5
# The columns that the command shows, with their titles; the last one needs no width.
_SHOWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "table": "table",
        "batch": "batch",
        "rows": "rows",
        "lag": "lag",
        "waiting_rows": "pending",
        "merged_at": "last merge",
        "state": "state",
    }
)


def progress(target: str, storage: Mapping[str, str] = _NO_STORAGE) -> "pa.Table":
    """A row for each table of a job: where it is, what waits for it, and whether it is kept.

    ``state`` is ``kept``, ``copying``, or ``parked`` with the ``reason`` and the place in the log: such a table stays
    as it was, until the source drops it. ``rows`` and ``size`` (bytes) are those of the table's files after its last
    merge, deleted rows and past states included; ``batch`` is the last micro-batch. ``lag`` has the seconds since the
    oldest change that waits for a merge came: 0 if none waits, null for a parked table. How far the job itself
    is behind the source is in the progress of its query. The same rows are in the Delta table ``_state/progress`` of
    the target, as they were after the last merge.

    Raises ``ConfigurationError`` for a folder that is not the target of a job.
    """
    require_delta()
    from replica.spark.jobs import job_state

    found = job_state.peek(absolute(target), storage)
    if found is None:
        raise ConfigurationError(f"target: {target} has no tables of a mirror or a history")
    state, _, number = found
    return state.progress(number, time.time())


def check_parked(target: str, source: Mapping[str, str]) -> None:
    """Raises ``ReplicaError`` with the tables that are kept no longer: the first of them, if they are many."""
    from replica.spark.jobs import job_state

    found = job_state.peek(target, storage_of(source))
    if found is not None and found[0].parked:
        reasons = [reason for _, reason in sorted(found[0].parked.items())]
        told, others = reasons[:_TOLD], len(reasons) - _TOLD
        if others > 0:
            command = shlex.join(["mysql-replica", "spark", "progress", "--target", target])
            told.append(
                f"{others} more table{'s' * (others > 1)} are kept no longer, all are shown by: {command}"
            )
        raise ReplicaError("; ".join(told))


def text(rows: "pa.Table") -> str:
    """The rows for people."""
    lines = [list(_SHOWN.values())]
    for row in rows.to_pylist():
        line = [_said(name, row[name]) for name in _SHOWN]
        if row["reason"] is not None:
            line[-1] += f": {row['reason']}"
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "".join(
        f"{'  '.join([*(one.ljust(width) for one, width in zip(line[:-1], widths, strict=True)), line[-1]])}\n"
        for line in lines
    )


def _said(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "lag":
        return f"{value:.0f} s"
    return value.isoformat(" ", "seconds") if isinstance(value, datetime) else str(value)


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_target_argument(parser, "the target of a mirror, a history or a typed changelog")
    add("--json", action="store_true", help="a line of JSON for each table, with all columns")
    add(
        "--storage-options",
        metavar="JSON",
        default="{}",
        help="the storage options of a target on an object store",
    )


def _run(options: Namespace, note: Note) -> None:
    require_delta()
    from replica.spark.source_options import parse_storage

    rows = progress(options.target, parse_storage(options.storage_options))
    if options.json:
        shown = "".join(f"{json.dumps(row, default=_json)}\n" for row in rows.to_pylist())
    else:
        shown = text(rows)
    sys.stdout.write(shown)
    sys.stdout.flush()


def _json(value: datetime) -> str:
    return value.isoformat()


JOB: Final = Job(
    "progress", "Show the tables of a job: what waits for them, and their lag", _add_arguments, _run
)

if __name__ == "__main__":
    run_script(JOB)
