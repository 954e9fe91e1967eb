"""Answers the statements of replicas, of the servers' tools, and of this library, from a table of known statements.

The statements were recorded from real replicas, which read the answers in MySQL's ``rpl_replica.cc`` and MariaDB's
``slave.cc``. Any other statement is refused as a syntax error.
"""

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from protocol.conversation.messages import TextValue
from protocol.records import field, record

from ..config.schema_store import SHOW_HISTORY, FileSchemaStore
from ..files.table_descriptions import RELAY_STORE
from ..sql.quoting import like_expression
from ..sql.words import Token
from .replica_sql import Expressions, SqlError, read_number, syntax_error, tokenize
from .replicas import ConnectedReplica
from .variables import Facts, selected, variables_of

_NO_SUCH_THREAD: Final = 1094
_NO_FUNCTION: Final = 1305
_ACCESS_DENIED: Final = 1227
# ER_OUT_OF_RESOURCES
_TOO_MUCH: Final = 1041
# Replicas set about ten variables; the GTID state of many domains is the longest.
_MOST_VARIABLES: Final = 100
_LONGEST_VARIABLES: Final = 1 << 18
# gtid_executed may have hundreds of thousands of intervals.
_LONGEST_ROW: Final = 1 << 24
# Patterns of one SHOW statement: each is compiled.
_MOST_PATTERNS: Final = 8


@record(frozen=True, slots=True)
class Rows:
    """A result set. ``numbers`` names the columns sent with a numeric type, which clients convert to numbers."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[TextValue]] = ()
    numbers: frozenset[str] = frozenset()


@record(slots=True)
class Client:
    """One connection's user, address and user variables."""

    connection_id: int
    user: str = ""
    host: str = ""
    tls_cipher: str = ""
    variables: dict[str, str | None] = field(default_factory=dict)
    since: float = field(default_factory=time.time)


class Answers:
    """Answers one client's statements.

    ``clients`` gives all connected clients, ``replicas`` those with a binlog dump. ``kill`` ends the connection with
    this id; False if there is none.
    """

    def __init__(
        self,
        facts: Facts,
        client: Client,
        clients: Callable[[], Sequence[Client]],
        replicas: Callable[[], Sequence[ConnectedReplica]],
        kill: Callable[[int], bool],
    ) -> None:
        self._facts = facts
        self._client = client
        self._clients = clients
        self._replicas = replicas
        self._kill = kill

    async def answer(self, sql: str) -> Rows | None:
        """The result set of a statement; None if its answer is a plain OK. Raises ``SqlError``."""
        tokens = tokenize(sql)
        words = " ".join(token.upper for token in tokens if token.kind == "word")
        self._facts.log.refresh()
        for pattern, handler in _STATEMENTS:
            if pattern.match(words):
                return await handler(self, sql, tokens)
        raise syntax_error(sql)

    # Values of names in expressions

    async def system(self, name: str) -> str | None:
        """``@@name``."""
        return await selected(self._facts, name)

    def variable(self, name: str) -> str | None:
        """``@name``."""
        return self._client.variables.get(name)

    async def call(self, name: str, arguments: Sequence[str | None]) -> str | None:
        """The result of a function."""
        match name, arguments:
            case "UNIX_TIMESTAMP", []:
                return str(int(time.time()))
            case "NOW", ["6"]:
                return datetime.now().isoformat(" ", "microseconds")
            case "MICROSECOND", [str(moment)]:
                return str(read_number(moment.partition(".")[2]) or 0)
            case "NOW" | "CURRENT_TIMESTAMP", []:
                return time.strftime("%Y-%m-%d %H:%M:%S")
            case "VERSION", []:
                return self._facts.identity.version
            case "CONNECTION_ID", []:
                return str(self._client.connection_id)
            case "CURRENT_USER", []:
                return f"{self._client.user}@%"
            case "USER", []:
                return f"{self._client.user}@{self._client.host}"
            case "DATABASE" | "SCHEMA", []:
                return None
            case "BINLOG_GTID_POS", [str(file), str(position)] if self._facts.identity.is_mariadb:
                return await self._gtid_position(file, position)
        raise SqlError(_NO_FUNCTION, "42000", f"FUNCTION {name} does not exist")

    async def _gtid_position(self, file: str, position: str) -> str | None:
        offset = read_number(position)
        if offset is None:
            return None
        found = await self._facts.gtids.state_at(file or self._facts.log.names[0], offset)
        return None if found is None else str(found)

    # Statements

    async def _set(self, sql: str, tokens: Sequence[Token]) -> Rows | None:
        words = Expressions(sql, tokens, self)
        words.take("SET")
        while True:
            token = words.take()
            if token.kind != "variable":
                # Session variables are ignored: nothing here depends on them.
                scope = token.value.partition(".")[0].upper()
                if scope in ("GLOBAL", "PERSIST"):
                    raise SqlError(
                        _ACCESS_DENIED, "42000", "Access denied: this server has no global variables to set"
                    )
                return None
            words.take("=", ":=")
            self._keep(token.value.lower(), await words.value())
            if words.at_end:
                return None
            words.take(",")

    def _keep(self, name: str, value: str | None) -> None:
        """Set a user variable. Raises ``SqlError`` if this client's variables would take too much memory."""
        variables = self._client.variables
        size = sum(len(key) + len(text or "") for key, text in variables.items() if key != name)
        if size + len(name) + len(value or "") > _LONGEST_VARIABLES or (
            len(variables) >= _MOST_VARIABLES and name not in variables
        ):
            raise SqlError(
                _TOO_MUCH,
                "HY000",
                f"this server keeps {_MOST_VARIABLES} user variables of {_LONGEST_VARIABLES} characters for a client",
            )
        variables[name] = value

    async def _select(self, sql: str, tokens: Sequence[Token]) -> Rows:
        words = Expressions(sql, tokens, self)
        words.take("SELECT")
        titles: list[str] = []
        values: list[str | None] = []
        numbers: set[str] = set()
        size = 0
        while True:
            first = words.peek()
            title, value = await words.titled()
            titles.append(title)
            values.append(value)
            size += len(title) + len(value or "")
            if size > _LONGEST_ROW:
                raise SqlError(_TOO_MUCH, "HY000", f"the row is longer than {_LONGEST_ROW} characters")
            if value and value.isdecimal() and first.kind in _WITH_TYPES:
                numbers.add(title)
            if words.skip("LIMIT"):
                words.take()
            if words.at_end:
                return Rows(tuple(titles), [values], frozenset(numbers))
            words.take(",")

    async def _no_rows(self, sql: str, tokens: Sequence[Token]) -> Rows:
        """information_schema is empty: a log does not say which tables exist now."""
        selected = tokens[1 : _index_of(tokens, "FROM")]
        names = [token.value for token in selected if token.kind in ("word", "name")]
        if not names:
            # Without a column, as of ``*``, the answer would be no result set.
            raise syntax_error(sql)
        return Rows(tuple(names))

    async def _schema_history(self, sql: str, tokens: Sequence[Token]) -> Rows:
        """The lines of the schema history that a relay keeps beside its files; none without one."""
        store = self._facts.log.beside(RELAY_STORE)
        lines = None if store is None else FileSchemaStore(store).load()
        return Rows(("Line",), [(line,) for line in lines or ()])

    async def _variables(self, sql: str, tokens: Sequence[Token]) -> Rows:
        wants = _name_filter(tokens)
        rows = [
            (name, await read(self._facts))
            for name, read in sorted(variables_of(self._facts).items())
            if wants(name)
        ]
        return Rows(("Variable_name", "Value"), rows)

    async def _status(self, sql: str, tokens: Sequence[Token]) -> Rows:
        wants = _name_filter(tokens)
        rows = [("Ssl_cipher", self._client.tls_cipher), ("Uptime", "1")]
        return Rows(("Variable_name", "Value"), [row for row in rows if wants(row[0])])

    async def _logs(self, sql: str, tokens: Sequence[Token]) -> Rows:
        log = self._facts.log
        rows = [(name, str(log.size(name))) for name in log.names]
        if self._facts.identity.is_mariadb:
            return Rows(("Log_name", "File_size"), rows, _NUMBERS)
        return Rows(("Log_name", "File_size", "Encrypted"), [(*row, "No") for row in rows], _NUMBERS)

    async def _log_status(self, sql: str, tokens: Sequence[Token]) -> Rows:
        file, position = await self._facts.gtids.end()
        columns: tuple[str, ...] = ("File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB")
        row = [file, str(position), "", ""]
        if not self._facts.identity.is_mariadb:
            columns += ("Executed_Gtid_Set",)
            row.append(str(await self._facts.executed()))
        return Rows(columns, [row], _NUMBERS)

    async def _processes(self, sql: str, tokens: Sequence[Token]) -> Rows:
        sending = {replica.connection_id: replica for replica in self._replicas()}
        rows = [self._process(client, sending.get(client.connection_id)) for client in self._clients()]
        return Rows(("Id", "User", "Host", "db", "Command", "Time", "State", "Info"), rows, _NUMBERS)

    def _process(self, client: Client, replica: ConnectedReplica | None) -> Sequence[TextValue]:
        command, state = "Sleep", ""
        if replica is not None:
            command = "Binlog Dump"
            state = _HAS_SENT_ALL if replica.is_waiting else "Sending binlog event to replica"
        elif client is self._client:
            command, state = "Query", "init"
        seconds = str(max(int(time.time() - client.since), 0))
        return str(client.connection_id), client.user, client.host, None, command, seconds, state, None

    async def _replica_list(self, sql: str, tokens: Sequence[Token]) -> Rows:
        mine = str(self._facts.identity.server_id)
        found = [(replica, replica.registered) for replica in self._replicas() if replica.registered]
        rows = [
            (str(registered.server_id), registered.host, str(registered.port), mine, replica.uuid)
            for replica, registered in found
            if registered is not None
        ]
        if self._facts.identity.is_mariadb:
            return Rows(("Server_id", "Host", "Port", "Master_id"), [row[:4] for row in rows], _NUMBERS)
        return Rows(("Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"), rows, _NUMBERS)

    async def _warnings(self, sql: str, tokens: Sequence[Token]) -> Rows:
        return Rows(("Level", "Code", "Message"))

    async def _end_connection(self, sql: str, tokens: Sequence[Token]) -> Rows | None:
        number = tokens[-1].text
        if not number.isdecimal() or tokens[-2].kind != "word":
            raise syntax_error(sql)
        connection_id = read_number(number)
        if connection_id is None or not self._kill(connection_id):
            raise SqlError(_NO_SUCH_THREAD, "HY000", f"Unknown thread id: {number}")
        return None


# Columns of SHOW statements that servers send with a numeric type.
_NUMBERS: Final = frozenset(
    {"File_size", "Id", "Master_id", "Port", "Position", "Server_Id", "Server_id", "Source_Id", "Time"}
)
# Kinds of SELECT expressions that may be numbers: variables, literals and functions, but no quoted text.
_WITH_TYPES: Final = frozenset({"system", "number", "word"})
_HAS_SENT_ALL: Final = "Source has sent all binlog to replica; waiting for more updates"


def _index_of(tokens: Sequence[Token], word: str) -> int:
    return next(index for index, token in enumerate(tokens) if token.upper == word)


def _name_filter(tokens: Sequence[Token]) -> Callable[[str], bool]:
    """The filter of ``LIKE 'x%'``, ``WHERE Variable_name = 'x'`` or ``IN ('x', 'y')``: any quoted text may match."""
    texts = [token.value for token in tokens if token.kind == "text"]
    if not texts:
        return lambda name: True
    if not any(token.upper == "LIKE" for token in tokens):
        wanted = {text.lower() for text in texts}
        return lambda name: name.lower() in wanted
    if len(texts) > _MOST_PATTERNS:
        raise SqlError(_TOO_MUCH, "HY000", f"a statement may have {_MOST_PATTERNS} patterns")
    patterns = [re.compile(like_expression(text), re.IGNORECASE) for text in texts]
    return lambda name: any(pattern.fullmatch(name) for pattern in patterns)


_Handler = Callable[[Answers, str, Sequence[Token]], Awaitable[Rows | None]]
# Patterns of a statement's words, in capitals; the first match counts.
_STATEMENTS: Final[tuple[tuple[re.Pattern[str], _Handler], ...]] = tuple(
    (re.compile(pattern), handler)
    for pattern, handler in (
        (r"SET\b", Answers._set),
        (r"SELECT .*\bFROM INFORMATION_SCHEMA (COLUMNS|TABLES|SCHEMATA|STATISTICS)\b", Answers._no_rows),
        (r"SELECT\b(?!.*\bFROM\b)", Answers._select),
        (r"SHOW (GLOBAL |SESSION |LOCAL )?VARIABLES\b", Answers._variables),
        (r"SHOW (GLOBAL |SESSION |LOCAL )?STATUS\b", Answers._status),
        (r"SHOW (BINARY|MASTER) LOGS$", Answers._logs),
        (r"SHOW (BINARY LOG|MASTER|BINLOG) STATUS$", Answers._log_status),
        (r"SHOW (FULL )?PROCESSLIST$", Answers._processes),
        (r"SHOW (REPLICAS|REPLICA HOSTS|SLAVE HOSTS)$", Answers._replica_list),
        (r"SHOW (WARNINGS|ERRORS)\b", Answers._warnings),
        (rf"{SHOW_HISTORY}$", Answers._schema_history),
        (r"KILL( CONNECTION| QUERY| HARD| SOFT)*$", Answers._end_connection),
    )
)
