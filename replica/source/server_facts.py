"""What a source says of itself, and what a replica tells it before the dump.

The statements are those that real replicas send: MySQL's ``rpl_replica.cc`` (get_master_version_and_clock) and
MariaDB's ``slave.cc``, which share the older names; MySQL also gets the newer ones. Where to start is not decided
here.
"""

import re
import time
from collections.abc import Iterator
from typing import Final

from protocol.constants import DumpFlag
from protocol.errors import DuplicateReplicaError, ServerError, SourceConfigurationError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet
from protocol.records import record

from ..config.options import Options
from .session import Session

# Everybody may read these, and a server leaves out those that it does not know.
_VARIABLES: Final = (
    "binlog_checksum",
    "binlog_format",
    "gtid_mode",
    "log_bin",
    "server_id",
    "server_uuid",
)
# ER_SOURCE_FATAL_ERROR_READING_BINLOG: the code for whatever a source refuses at a dump, which we do in its place.
CANNOT_READ_BINLOG: Final = 1236
_MARIADB_UNDERSTANDS_GTIDS: Final = 4  # sql/log_event.h: MARIA_SLAVE_CAPABILITY_GTID
# Behind each owned GTID stands its thread: "uuid:7#18:6#16". The next uuid follows without a comma on 9.7.
_OWNER: Final = re.compile(r"#\d+")
_LAST_OWNER: Final = re.compile(r"#\d+?(?=[0-9a-fA-F]{8}-)")
_HAS_CHECKSUMS: Final = "SELECT @master_binlog_checksum"


@record(frozen=True, slots=True)
class Source:
    """Facts about a source. ``clock_offset`` is its clock's lead over ours, in seconds.

    ``has_gtids``: every transaction has one (MySQL: gtid_mode=ON; MariaDB always). ``server_uuid`` is None on
    MariaDB.
    """

    is_mariadb: bool
    version: tuple[int, ...]
    server_id: int
    server_uuid: str | None
    has_gtids: bool
    has_checksums: bool
    log_bin: bool
    binlog_format: str
    clock_offset: float

    @property
    def version_text(self) -> str:
        """Such as "9.7.4" or "11.8.6-MariaDB"."""
        return ".".join(map(str, self.version)) + ("-MariaDB" if self.is_mariadb else "")

    @property
    def dump_flags(self) -> int:
        """Flags of every dump. Without 0x0002 MariaDB leaves ANNOTATE_ROWS out, and then sizes do not sum up."""
        return DumpFlag.MARIADB_ANNOTATE_ROWS if self.is_mariadb else 0

    @property
    def now(self) -> float:
        """The source's clock, in seconds since 1970."""
        return time.time() + self.clock_offset

    def check(self) -> None:
        """Raise ``SourceConfigurationError`` when the settings do not allow rows to be streamed."""
        if not self.log_bin:
            raise SourceConfigurationError(
                "log_bin is OFF: the source writes no binary log -- start it with --log-bin (and a --server-id "
                "above 0)"
            )
        if self.binlog_format != "ROW":
            raise SourceConfigurationError(
                f"binlog_format is {self.binlog_format}: the source logs statements, not rows -- set "
                "binlog_format=ROW (SET GLOBAL binlog_format = ROW, for sessions that begin later)"
            )


async def ask(session: Session) -> Source:
    """Ask the source about itself."""
    offset = float(await session.query_value("SELECT UNIX_TIMESTAMP()")) - time.time()
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    rows = await session.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    found = {str(name).lower(): str(value) for name, value in rows}
    is_mariadb = session.handshake.is_mariadb
    return Source(
        is_mariadb=is_mariadb,
        version=session.handshake.version,
        server_id=int(found.get("server_id", "0")),
        server_uuid=None if is_mariadb else found.get("server_uuid"),
        has_gtids=is_mariadb or found.get("gtid_mode", "OFF").upper() == "ON",
        # Servers before 5.6.2 do not know the variable, and write no checksums.
        has_checksums="binlog_checksum" in found,
        log_bin=found.get("log_bin", "ON").upper() in ("ON", "1"),
        binlog_format=found.get("binlog_format", "ROW").upper(),
        clock_offset=offset,
    )


async def introduce(session: Session, source: Source, options: Options) -> bool:
    """Tell the source what this replica understands; before any dump.

    Returns whether events carry checksums until the first FORMAT_DESCRIPTION says otherwise.
    """
    for statement in _introduction(source, options):
        await session.query(statement)
    return source.has_checksums and await session.query_value(_HAS_CHECKSUMS) not in ("", "NONE")


def _introduction(source: Source, options: Options) -> Iterator[str]:
    # The server takes nanoseconds.
    yield _set(source, "heartbeat_period", str(round(options.heartbeat * 1e9)))
    if source.has_checksums:
        yield _set(source, "binlog_checksum", "@@global.binlog_checksum")
    if source.is_mariadb:
        yield f"SET @mariadb_slave_capability = {_MARIADB_UNDERSTANDS_GTIDS}"


def _set(source: Source, name: str, value: str) -> str:
    newer = "" if source.is_mariadb else f", @source_{name} = {value}"
    return f"SET @master_{name} = {value}{newer}"


async def identify(session: Session, source: Source, options: Options) -> None:
    """Give the replica's uuid, by which MySQL tells one replica from another, and register."""
    if not source.is_mariadb:
        await session.query(
            f"SET @slave_uuid = '{options.replica_uuid}', @replica_uuid = '{options.replica_uuid}'"
        )
    await session.register()


async def find_twin(source: Source, options: Options) -> DuplicateReplicaError | None:
    """Whether another replica with our id and uuid is why the source has ended the dump.

    Later versions and MariaDB say so; MySQL 5.6 just ends the older dump (rpl_master.cc: kill_zombie_dump_threads),
    and only its list of replicas tells: by then our own entry is gone from it, or has become the twin's.
    """
    if source.is_mariadb or source.version >= (5, 7):
        return None
    session = await Session.open(options)
    try:
        rows = await session.query("SHOW SLAVE HOSTS")
    finally:
        await session.aclose()
    if not any(row[0] == str(options.server_id) and row[-1] == options.replica_uuid for row in rows):
        return None
    return DuplicateReplicaError(
        CANNOT_READ_BINLOG,
        "HY000",
        "another replica with our server_id and uuid has connected, so the source has ended our dump",
        "give each replica of this source a server_id and a replica uuid of its own",
    )


async def is_seeking(source: Source, options: Options, connection_id: int) -> bool:
    """Whether the source still looks for the first transaction to send over that connection.

    While it does it may be silent for long. It says so in the list of its connections, of which everybody sees their
    own. A dump that "has sent all" has nothing to look for: then what it sent did not arrive.
    """
    session = await Session.open(options)
    try:
        rows = await session.query("SHOW PROCESSLIST")
    finally:
        await session.aclose()
    # Id, User, Host, db, Command, Time, State
    states = [
        str(row[6]) for row in rows if row[0] == str(connection_id) and str(row[4]).startswith("Binlog")
    ]
    return bool(states) and "has sent all" not in states[0]


async def executed_gtids(session: Session, source: Source) -> AnyGtidSet:
    """All transactions of the source's log. Everybody may ask this."""
    if source.is_mariadb:
        return MariadbGtidSet(await session.query_value("SELECT @@GLOBAL.gtid_binlog_pos"))
    return GtidSet(await session.query_value("SELECT @@GLOBAL.gtid_executed"))


async def owned_gtids(session: Session) -> GtidSet:
    """MySQL: transactions that are just being committed; replicas may have them already."""
    owned = await session.query_value("SELECT @@GLOBAL.gtid_owned")
    return GtidSet(_OWNER.sub("", _LAST_OWNER.sub(",", owned)))


async def purged_gtids(session: Session) -> GtidSet:
    """MySQL: transactions that the log does not hold any more, or never held."""
    return GtidSet(await session.query_value("SELECT @@GLOBAL.gtid_purged"))


async def log_status(session: Session, source: Source) -> tuple[str, int] | None:
    """File and position of the log's end; None where the user may not ask (REPLICATION CLIENT, BINLOG MONITOR)."""
    # MySQL renamed it in 8.2 and took the old name away in 8.4; MariaDB knows the old one.
    renamed = not source.is_mariadb and source.version >= (8, 2)
    try:
        rows = await session.query("SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    except ServerError:
        return None
    return (str(rows[0][0]), int(str(rows[0][1]))) if rows else None


async def log_files(session: Session) -> list[str] | None:
    """The names of the log's files, oldest first; None where the user may not ask."""
    try:
        return [str(row[0]) for row in await session.query("SHOW BINARY LOGS")]
    except ServerError:
        return None
