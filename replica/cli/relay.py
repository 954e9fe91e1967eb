"""``mysql-replica relay``: a source's log into a directory, as files that equal the source's.

What it stands on is imported when it runs: other subcommands shall not wait for asyncio and TLS.
"""

from argparse import ArgumentParser, Namespace
from typing import Final

from .command import Command
from .console import Console


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("dsn", metavar="DSN", help="the source: mysql://user:password@host:port/?option=value")
    add("directory", metavar="DIR", help="where the files are written; made if it is not there")
    add(
        "--from",
        dest="start",
        metavar="PLACE",
        help="what an empty directory begins with: earliest (default), now for the newest file, or FILE:4",
    )
    add("--once", action="store_true", help="end at the end of the log instead of waiting for more")
    add("--server-id", metavar="N", help="this replica's id, one that no other replica of the source has")
    add("--sync-interval", metavar="SECONDS", type=float, default=1.0, help="make the disk keep it so often")


_EPILOG: Final = """\
What has been written is on disk after the sync interval, and as soon as nothing more comes. After a stop, a crash or
a kill the next run goes on where the files end. Files that nobody needs any more may be deleted, the oldest first.
Serve the directory to replicas with: mysql-replica serve DIR"""


def _run(options: Namespace, console: Console) -> int:
    from ..relay import BinlogRelay
    from .service import run_until_stopped

    # None counts as not given.
    given = {"start": options.start or "earliest", "server_id": options.server_id}
    relay = BinlogRelay(
        options.dsn,
        options.directory,
        sync_interval=options.sync_interval,
        once=options.once,
        **given,
    )
    console.note(f"{relay.address} -> {options.directory}")
    run_until_stopped(relay.run, relay.aclose)
    console.note(f"stopped behind {relay.position or 'nothing'}")
    return 0


COMMAND: Final = Command(
    "relay", "Copy a source's binary log into files, and follow it", _add_arguments, _run, _EPILOG
)
