"""Asks a source for its settings, GTID sets and log files, and sends the statements that precede a dump.

The statements are those of real replicas: MySQL's ``rpl_replica.cc`` (get_master_version_and_clock) and MariaDB's
``slave.cc``, which share the older names; MySQL also gets the newer names. Where to start is not decided here.
"""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Final

from protocol.constants import DumpFlag
from protocol.conversation.server_errors import CANNOT_READ_BINLOG
from protocol.errors import DuplicateReplicaError, ServerError, SourceConfigurationError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.position import FILE_NAME_LIMIT
from protocol.records import record

from ..config.options import Options
from ..config.steady_time import steady_time
from .server_name import NAME_VARIABLES, server_name, variables_of, variables_statement
from .session import Session
from .statement_answers import Answer, Question, first_text, only_row, read_value, rows_of

_LOGS_REPLICATED: Final = ("log_replica_updates", "log_slave_updates")
# Every user may read these variables, and a server leaves out variables that it does not know.
_VARIABLES: Final = (
    "binlog_checksum",
    "binlog_format",
    "explicit_defaults_for_timestamp",
    "gtid_binlog_state",
    "gtid_mode",
    "gtid_slave_pos",
    "log_bin",
    *_LOGS_REPLICATED,
    "lower_case_table_names",
    "rpl_semi_sync_master_enabled",
    "version_comment",
    "wsrep_gtid_mode",
    "wsrep_on",
    *NAME_VARIABLES,
)
#: version_comment of a ``BinlogServer`` of this library.
RELAY_COMMENT: Final = "mysql-replica"
_MARIADB_UNDERSTANDS_GTIDS: Final = 4  # sql/log_event.h: MARIA_SLAVE_CAPABILITY_GTID
# gtid_owned adds the thread to each GTID: "uuid:7#18:6#16". On 9.7 the next uuid follows without a comma.
_OWNER: Final = re.compile(r"#\d+")
_LAST_OWNER: Final = re.compile(r"#\d+?(?=[0-9a-fA-F]{8}-)")
# Of a setting's value, for messages about it.
_LONGEST_WORD: Final = 64
# The year 9999: more than a clock can show.
_LAST_SECOND: Final = 253402300800
# What the source understood of the checksums that were asked for.
_CHECKSUM: Final = "SELECT @master_binlog_checksum"
# Both functions take the time at which the statement began.
_CLOCK: Final = Question("SELECT UNIX_TIMESTAMP(), MICROSECOND(NOW(6))")
#: A row of a name and a number: on MariaDB, 0 if no replication runs. Every user may ask.
RUNNING_REPLICATION: Final = "SHOW GLOBAL STATUS LIKE 'Slaves_running'"
_FILES: Final = "SHOW BINARY LOGS"
_EXECUTED: Final = "SELECT @@GLOBAL.gtid_executed"
_OWNED: Final = "SELECT @@GLOBAL.gtid_owned"

#: server_uuid and server_id.
Identity = tuple[str | None, int | None]


@record(frozen=True, slots=True)
class Source:
    """Facts about a source. ``clock_offset`` is the lead of its clock over the local clock, in seconds, when it was
    asked. ``clock_lead`` is that over ``steady_time``: it stays, also when the local clock is set.

    ``has_gtids``: every transaction has a GTID (MySQL: gtid_mode=ON; MariaDB always). ``server_uuid`` is None on
    MariaDB, and the name of a node of Galera. ``folds_names``: lower_case_table_names is 1 or 2; ``lowers_names``: 1,
    and names in the log are lower case. ``explicit_timestamps`` is explicit_defaults_for_timestamp, None where the
    server does not know it. ``is_relay``: the source is a ``BinlogServer`` of this library, not a database server.
    ``is_galera``: it is a node of a cluster of MariaDB, and other nodes may have its server_id. ``counts_alone``: it
    is, and GTIDs of other nodes name other transactions (wsrep_gtid_mode=OFF). ``is_semi_sync``: commits on MariaDB
    may wait for replicas. ``unlogged`` is the place in domains of which MariaDB's log has nothing: what they hold was
    replicated before the log began. ``logs_replicated``: as a replica it logs what it replicates. ``name`` tells the
    server from others behind its address.
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
    clock_lead: float
    folds_names: bool = False
    lowers_names: bool = False
    explicit_timestamps: bool | None = None
    is_relay: bool = False
    is_galera: bool = False
    counts_alone: bool = False
    is_semi_sync: bool = False
    unlogged: tuple[MariadbGtid, ...] = ()
    logs_replicated: bool = True
    name: str = ""

    @property
    def version_text(self) -> str:
        """Such as "9.7.4" or "11.8.6-MariaDB"."""
        return ".".join(map(str, self.version)) + ("-MariaDB" if self.is_mariadb else "")

    @property
    def dump_flags(self) -> int:
        """Flags of every dump. Without 0x0002 MariaDB leaves ANNOTATE_ROWS out, and event sizes do not add up."""
        return DumpFlag.MARIADB_ANNOTATE_ROWS if self.is_mariadb else 0

    @property
    def now(self) -> float:
        """The source's clock, in seconds since 1970."""
        return steady_time() + self.clock_lead

    def with_unlogged(self, gtids: AnyGtidSet) -> AnyGtidSet:
        """A GTID set of the log, as another server would give it, whose log may have the domains of ``unlogged``.

        A server that is asked without a domain sends all that its log has of it, which was before the place.
        """
        if not self.unlogged or not isinstance(gtids, MariadbGtidSet):
            return gtids
        return MariadbGtidSet([*self.unlogged, *gtids])

    def check(self) -> None:
        """Raise ``SourceConfigurationError`` if log_bin or binlog_format does not allow rows to be streamed."""
        if not self.log_bin:
            raise SourceConfigurationError(
                "log_bin is OFF: the source writes no binary log -- start it with --log-bin (and a --server-id "
                "above 0)"
            )
        if self.binlog_format != "ROW":
            raise SourceConfigurationError(
                f"binlog_format is {self.binlog_format}: the source logs statements, not rows -- set "
                "binlog_format=ROW (SET GLOBAL binlog_format = ROW takes effect for new sessions; a copy of tables "
                "then needs FLUSH BINARY LOGS)"
            )


async def ask(session: Session) -> Source:
    """Query the facts about a source. The options of the session then name it."""
    statement = variables_statement(_VARIABLES)
    asked = steady_time()
    clock, variables = await session.query_each([_CLOCK, Question(statement, 2)])
    lead = await _clock_lead(session, clock, asked)
    found = variables_of(rows_of(variables))
    is_mariadb = session.handshake.is_mariadb
    name = server_name(found)
    session.stay_with(name)
    is_galera = found.get("wsrep_on", "OFF").upper() == "ON"
    explicit = found.get("explicit_defaults_for_timestamp")
    return Source(
        is_mariadb=is_mariadb,
        version=session.handshake.version,
        server_id=read_value(_server_id, found.get("server_id", "0"), statement),
        server_uuid=name if is_galera else None if is_mariadb else found.get("server_uuid"),
        has_gtids=is_mariadb or found.get("gtid_mode", "OFF").upper() == "ON",
        # Servers before 5.6.2 do not know the variable, and write no checksums.
        has_checksums="binlog_checksum" in found,
        log_bin=found.get("log_bin", "ON").upper() in ("ON", "1"),
        binlog_format=found.get("binlog_format", "ROW").upper()[:_LONGEST_WORD],
        clock_offset=lead + steady_time() - time.time(),
        clock_lead=lead,
        folds_names=found.get("lower_case_table_names", "0") in ("1", "2"),
        lowers_names=found.get("lower_case_table_names", "0") == "1",
        explicit_timestamps=None if explicit is None else explicit.upper() in ("ON", "1"),
        is_relay=found.get("version_comment") == RELAY_COMMENT,
        is_galera=is_galera,
        counts_alone=is_galera and is_mariadb and found.get("wsrep_gtid_mode", "OFF").upper() == "OFF",
        unlogged=read_value(lambda text: _unlogged(text, found), found.get("gtid_slave_pos", ""), statement),
        # MySQL 8.0 has both names of the variable, later versions and MariaDB have one.
        logs_replicated="OFF" not in (found.get(one, "").upper() for one in _LOGS_REPLICATED),
        is_semi_sync=is_mariadb and found.get("rpl_semi_sync_master_enabled", "OFF").upper() == "ON",
        name=name,
    )


async def _clock_lead(session: Session, answer: Answer, asked: float) -> float:
    """The lead of the source's clock over ``steady_time``, in seconds; right within half of the query's time."""
    statement = _CLOCK.sql
    if isinstance(answer, ServerError):
        # Servers before 5.6.4 know whole seconds only.
        statement, asked = "SELECT UNIX_TIMESTAMP()", steady_time()
        answer = await session.query(statement)
    values = only_row(answer, statement)
    seconds, microseconds = (read_value(_seconds, value, statement) for value in (*values, "0")[:2])
    return seconds + microseconds / 1e6 - (asked + steady_time()) / 2


def _unlogged(replicated: str, found: Mapping[str, str]) -> tuple[MariadbGtid, ...]:
    logged = {item.partition("-")[0].strip() for item in found.get("gtid_binlog_state", "").split(",")}
    return tuple(gtid for gtid in MariadbGtidSet(replicated) if str(gtid.domain_id) not in logged)


def _server_id(text: str) -> int:
    # A checkpoint with another number could not be read again.
    value = int(text)
    if not 0 <= value < 1 << 32:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < _LAST_SECOND:
        raise ValueError(text)
    return seconds


async def introduce(session: Session, source: Source, options: Options) -> bool:
    """Tell the source before a dump what this replica understands: checksums, heartbeats, MariaDB's GTIDs.

    Returns whether events carry checksums up to the first FORMAT_DESCRIPTION, which says it anew.
    """
    statements = [*_introduction(source, options)]
    answers = [rows_of(answer) for answer in await session.query_each([*map(Question, statements)])]
    if not source.has_checksums:
        return False
    return first_text(answers[statements.index(_CHECKSUM)]) not in ("", "NONE")


def _introduction(source: Source, options: Options) -> Iterator[str]:
    # The server takes nanoseconds.
    yield _set(source, "heartbeat_period", str(round(options.heartbeat * 1e9)))
    if source.has_checksums:
        yield _set(source, "binlog_checksum", "@@global.binlog_checksum")
    if source.is_mariadb:
        yield f"SET @mariadb_slave_capability = {_MARIADB_UNDERSTANDS_GTIDS}"
    if source.has_checksums:
        yield _CHECKSUM


def _set(source: Source, name: str, value: str) -> str:
    newer = "" if source.is_mariadb else f", @source_{name} = {value}"
    return f"SET @master_{name} = {value}{newer}"


async def identify(session: Session, source: Source, options: Options) -> None:
    """Send the replica's uuid, by which MySQL tells replicas apart, and register."""
    if not source.is_mariadb:
        await session.query(
            f"SET @slave_uuid = '{options.replica_uuid}', @replica_uuid = '{options.replica_uuid}'"
        )
    await session.register()


async def find_twin(source: Source, options: Options) -> DuplicateReplicaError | None:
    """The error if the source ended the dump because another replica connected with the same server_id and uuid.

    Later versions and MariaDB report this themselves. MySQL 5.6 only ends the older dump (rpl_master.cc:
    kill_zombie_dump_threads). Its list of replicas shows the cause: by then this replica's own entry is gone from the
    list, so an entry with the same server_id and uuid is the other replica's.
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
        "another replica with the same server_id and uuid has connected, so the source has ended this dump",
        "give each replica of this source a server_id and a replica uuid of its own",
    )


async def executed_gtids(session: Session, source: Source) -> AnyGtidSet:
    """All transactions that the source has logged (MariaDB) or executed (MySQL). Every user may ask this."""
    if source.is_mariadb:
        return await session.query_as(MariadbGtidSet, "SELECT @@GLOBAL.gtid_binlog_pos")
    return await session.query_as(GtidSet, _EXECUTED)


async def has_exact_gtids(session: Session, source: Source) -> bool:
    """Whether everything in ``gtid_executed`` is visible in the tables now: MySQL 5.7 and later, commits in order.

    Without binlog_order_commits, and on MySQL 5.6, a GTID may be there before the engine has committed. MariaDB has
    no such set.
    """
    if source.is_mariadb or not source.has_gtids or source.version < (5, 7):
        return False
    return await session.query_value("SELECT @@GLOBAL.binlog_order_commits") == "1"


async def owned_gtids(session: Session) -> GtidSet:
    """MySQL: transactions being committed now; replicas may already have them."""
    return await session.query_as(_without_owners, _OWNED)


def _without_owners(text: str) -> GtidSet:
    return GtidSet(_OWNER.sub("", _LAST_OWNER.sub(",", text)))


async def purged_gtids(session: Session) -> GtidSet:
    """MySQL: transactions that the log no longer holds, or never held."""
    return await session.query_as(GtidSet, "SELECT @@GLOBAL.gtid_purged")


async def log_status(session: Session, source: Source) -> tuple[str, int] | None:
    """File and position of the log's end; None if the user lacks REPLICATION CLIENT (MariaDB: BINLOG MONITOR)."""
    question = status_question(source)
    (answer,) = await session.query_each([question])
    return _status_of(answer, question)


def status_question(source: Source, columns: int = 2) -> Question:
    """The question for file and position of the log's end, and its binlog_do_db and binlog_ignore_db."""
    # MySQL renamed the statement in 8.2 and removed the old name in 8.4; MariaDB has the old name.
    renamed = not source.is_mariadb and source.version >= (8, 2)
    return Question("SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS", columns)


def replica_status_statement(source: Source) -> str:
    """The statement for the status of a server as a replica: a row for each of its channels."""
    if source.is_mariadb:
        return "SHOW ALL SLAVES STATUS"
    return "SHOW REPLICA STATUS" if source.version >= (8, 0, 22) else "SHOW SLAVE STATUS"


def _status_of(answer: Answer, question: Question) -> tuple[str, int] | None:
    if isinstance(answer, ServerError) or not answer:
        return None
    file, position = answer[0]
    return read_value(_file_name, file, question.sql), read_value(_offset, position, question.sql)


def _file_name(text: str) -> str:
    # As a source gives it: of a ROTATE event, no other names are taken either.
    if not 0 < len(text) <= FILE_NAME_LIMIT or "\0" in text:
        raise ValueError(text[:FILE_NAME_LIMIT])
    return text


def _offset(text: str) -> int:
    """A place in a log file, as a source gives it; ``ValueError`` if it is none."""
    value = int(text)
    if not 0 <= value < 1 << 63:
        raise ValueError(text)
    return value


@record(frozen=True, slots=True)
class LogMark:
    """How far a source's log has come: what ``log_status`` returns, and MySQL's GTIDs, read in this order.

    A transaction goes from ``owned`` to ``executed``: this order misses none. Both are None without GTIDs and on
    MariaDB.
    """

    end: tuple[str, int] | None
    owned: GtidSet | None = None
    executed: GtidSet | None = None


async def log_mark(session: Session, source: Source, *before: Question) -> tuple[list[Answer], LogMark]:
    """The answers to the questions, and then a mark of the log, by one wait for the network."""
    question = status_question(source)
    sets = [Question(_OWNED), Question(_EXECUTED)] if source.has_gtids and not source.is_mariadb else []
    answers = await session.query_each([*before, question, *sets])
    end = _status_of(answers[len(before)], question)
    texts = [first_text(rows_of(answer)) for answer in answers[len(before) + 1 :]]
    if not texts:
        return answers[: len(before)], LogMark(end)
    owned, executed = texts
    mark = LogMark(end, read_value(_without_owners, owned, _OWNED), read_value(GtidSet, executed, _EXECUTED))
    return answers[: len(before)], mark


async def log_files(session: Session) -> list[str] | None:
    """The names of the log's files, oldest first; None if the user lacks the privilege."""
    try:
        rows = await session.query(_FILES)
    except ServerError:
        return None
    return [read_value(_file_name, row[0], _FILES) for row in rows]
