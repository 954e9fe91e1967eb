"""``mysql-replica relay``: copies a source's binary log into a directory, as files equal to the source's.

``replica.relay`` is imported when it runs, so that other subcommands do not load asyncio and TLS.
"""

from argparse import ArgumentParser, Namespace
from typing import Final

from .arguments import DSN_HELP, SERVER_ID_HELP, add_key_argument, add_metrics_argument
from .command import Command
from .console import Console


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help=DSN_HELP)
    add("directory", metavar="DIR", help="directory for the binlog files; created if it does not exist")
    add(
        "--from",
        "--start",
        dest="start",
        metavar="PLACE",
        help="first file of an empty directory: earliest (default), now for the newest file, or FILE:4",
    )
    add("--once", action="store_true", help="stop at the end of the log; default: wait for new events")
    add("--server-id", metavar="N", help=SERVER_ID_HELP)
    add_key_argument(parser)
    add_metrics_argument(parser)
    add(
        "--sync-interval",
        metavar="SECONDS",
        type=float,
        default=1.0,
        help="flush written events to the disk (fsync) this often; default: 1",
    )


_EPILOG: Final = """\
Written events are flushed to the disk after the sync interval, and as soon as the source has sent all of its log.
After a stop, a crash or a kill the next run resumes where the files end. Files that are no longer needed may be
deleted, the oldest first. Serve the directory to replicas with: mysql-replica serve DIR

The file relay.schemas beside them has the columns of the tables at each place of the log: from information_schema
when the relay first connects (the user needs SELECT), then from the DDL that it copies. decode, serve, open_binlog
and Spark take column names from it where the log has none."""


def _run(options: Namespace, console: Console) -> int:
    from ..relay import BinlogRelay
    from ..relay.relay_status import relay_metrics
    from .metrics import Report, serving_metrics
    from .service import run_until_stopped

    # An option that is None counts as not given.
    given = {
        "start": options.start or "earliest",
        "server_id": options.server_id,
        "get_server_public_key": options.get_server_public_key,
    }
    relay = BinlogRelay(
        options.dsn,
        options.directory,
        sync_interval=options.sync_interval,
        once=options.once,
        **given,
    )
    console.note(f"{relay.address} -> {options.directory}")

    def report() -> Report:
        status = relay.status
        return Report(status.state, status.state == "streaming", relay_metrics(status))

    async def run() -> None:
        async with serving_metrics(options.metrics, report, console):
            await relay.run()

    run_until_stopped(run, relay.aclose)
    console.note(f"stopped at {relay.position or 'the start: nothing was written'}")
    return 0


COMMAND: Final = Command(
    "relay", "Copy a source's binary log into files, as it is written", _add_arguments, _run, _EPILOG
)
