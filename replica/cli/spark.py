"""``mysql-replica spark JOB``: one subcommand for each job of ``replica.spark.jobs``.

A new job is added to ``JOBS``. The jobs' modules import pyspark and other extras only when they run.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Final

from ..spark.jobs import changelog, history, mirror, progress, resync
from ..spark.jobs.job_arguments import Job
from .command import Command
from .console import Console
from .option_names import note_flags

JOBS: Final[tuple[Job, ...]] = (changelog.JOB, mirror.JOB, history.JOB, resync.JOB, progress.JOB)


def _add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(metavar="JOB", required=True)
    for job in JOBS:
        subparser = subparsers.add_parser(
            job.name,
            help=job.help,
            description=job.help,
            epilog=job.epilog,
            formatter_class=RawDescriptionHelpFormatter,
        )
        job.add_arguments(subparser)
        # SUPPRESS: a default would overwrite a --debug given before the job's name.
        subparser.add_argument(
            "--debug", action="store_true", default=SUPPRESS, help="print the traceback of an error"
        )
        subparser.set_defaults(job=job)
        note_flags(subparser)


def _run(options: Namespace, console: Console) -> int:
    options.job.run(options, console.note)
    return 0


COMMAND: Final = Command(
    "spark", "Run a Spark job that writes a log's changes to tables", _add_arguments, _run
)
