"""``resync``: tables of a ``mirror`` or a ``history`` are copied anew from the source, while the job runs.

    mysql-replica spark resync --target /lake --table shop.orders

    from replica.spark.jobs.resync import resync

    resync("/lake", ["shop.orders"])

The job that keeps the target copies them, as it has the source and the password (``copies_anew``); this module only
asks it to, by a file in the target (``copy_requests``).
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from protocol.errors import ConfigurationError
from replica.config.table_filter import table_filter
from replica.config.table_names import split_text
from replica.spark.jobs.job_arguments import Job, Note, add_target_argument, run_script
from replica.spark.jobs.spark_session import absolute, require_delta

_NO_STORAGE: Final[Mapping[str, str]] = MappingProxyType({})


def resync(target: str, tables: Sequence[str], *, storage: Mapping[str, str] = _NO_STORAGE) -> list[str]:
    """Ask the job of a target to copy tables anew; ``tables`` are patterns such as ``shop.*``. Returns their names.

    A running job begins within seconds, any other job when it is started. Meanwhile the table stays as it was, and
    its changes wait; other tables go on. A table that was parked is kept again. In a ``history`` all present states
    of the table end at the time of the copy, and new ones begin. ``progress`` says ``copying`` until the copy is
    done. Raises ``ConfigurationError`` for a target without a job, for one of a typed changelog, and for patterns
    without a table.
    """
    require_delta()
    from replica.spark.jobs import job_state
    from replica.spark.jobs.copy_requests import Requests

    target = absolute(target)
    found = job_state.peek(target, storage)
    if found is None:
        raise ConfigurationError(f"target: {target} has no tables of a mirror or a history")
    state = found[0]
    if state.is_changelog:
        raise ConfigurationError(
            f"target: {target} has the changes of a typed changelog, and a copy has rows, not changes: begin a "
            "changelog in another folder, or keep the tables by a mirror or a history"
        )
    known = sorted({*state.tables, *state.parked})
    wants = table_filter(tables)
    chosen = [name for name in known if wants is None or wants(*split_text(name))]
    if not chosen or (wants is not None and wants.seen.unmatched):
        raise ConfigurationError(
            f"{', '.join(tables)}: {target} has no such table. A new table of the source is copied when its job is "
            "started with includeTables that select it"
        )
    requests = Requests(target, storage)
    for name in chosen:
        requests.add(name)
    return chosen


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_target_argument(parser, "the target of a mirror or a history")
    add(
        "--table",
        action="append",
        required=True,
        metavar="PATTERN",
        help="the table, as shop.orders or shop.*; may be given again",
    )
    add(
        "--storage-options",
        metavar="JSON",
        default="{}",
        help="the storage options of a target on an object store",
    )


def _run(options: Namespace, note: Note) -> None:
    from replica.spark.source_options import parse_storage

    storage = parse_storage(options.storage_options)
    for name in resync(options.target, options.table, storage=storage):
        note(f"{name}: asked for; its job copies it now, or when it is started")


JOB: Final = Job("resync", "Have tables of a job copied anew while it runs", _add_arguments, _run)

if __name__ == "__main__":
    run_script(JOB)
