"""Random tables on a real server, random changes of their rows, and what SELECT showed between the changes.

``make_table`` writes the SQL, ``RandomTable.run`` has a server do it. What a binlog stream yields for the table can
then be compared with ``RandomTable.steps``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from tests.support.column_kinds import Dialect, Kind, kinds_of
from tests.support.selected_values import Raw, text_of
from tests.support.servers import Server

# What a row may need at most, so that it fits into 65,535 bytes in every character set.
_MAX_ROW_SIZE = 20_000
_MAX_INSERTED = 5
_BLOBS = tuple(f"{size}{kind}" for size in ("TINY", "", "MEDIUM", "LONG") for kind in ("BLOB", "TEXT"))

_ODD_NAMES = (
    *(
        "c",
        "C",
        "select",
        "a b",
        " a",
        "0",
        "%s",
        "{x}",
        "a.b",
        "#c",
        "@1",
        "$",
        "-- ",
        "/*",
        "q`q",
        "'",
        '"',
        "\\",
    ),
    *(
        "new\nline",
        "tab\tbed",
        "crlf\r\n",
        "ünïcödé",
        "日本",
        "Ж",
        "\u200b",
        "()",
        "):\n    import os\n#",
        "x" * 50,
    ),
)

Row = tuple[Raw | None, ...]


@dataclass
class RandomColumn:
    """``kind`` says how values are selected and compared; a generated column is never written to."""

    name: str
    definition: str
    kind: Kind
    is_nullable: bool
    is_generated: bool = False

    @property
    def quoted(self) -> str:
        return quote_name(self.name)

    @property
    def is_blob(self) -> bool:
        """BLOB and TEXT of each size, and MariaDB's JSON, which is a LONGTEXT."""
        return self.kind.sql.startswith(_BLOBS) or (self.kind.read is text_of and self.kind.sql == "JSON")


@dataclass
class Step:
    """A statement that changed rows: which ones it was about, and all rows before and after, by id.

    ``written`` are the columns that the statement or the server gives values.
    """

    operation: str
    ids: list[int]
    sql: str
    written: list[str] = field(default_factory=list)
    before: dict[int, Row] = field(default_factory=dict)
    after: dict[int, Row] = field(default_factory=dict)


@dataclass
class RandomTable:
    schema: str
    name: str
    columns: list[RandomColumn]
    primary_key: list[str]
    create: str
    row_image: str
    in_transaction: bool
    steps: list[Step]
    logs_generated: bool = True

    @property
    def id_index(self) -> int:
        return next(index for index, column in enumerate(self.columns) if column.kind is ID_KIND)

    @property
    def quoted(self) -> str:
        return f"{self.schema}.{quote_name(self.name)}"

    def run(self, connection: pymysql.Connection[Any]) -> None:
        """Create the table and take all steps, in one go; fills in what each step saw."""
        expressions = ", ".join(column.kind.select.format(column.quoted) for column in self.columns)
        select = f"SELECT {expressions} FROM {self.quoted} ORDER BY {self.columns[self.id_index].quoted}"
        statements = [f"SET SESSION binlog_row_image = '{self.row_image}'", self.create]
        if self.in_transaction:
            statements.append("START TRANSACTION")
        for step in self.steps:
            statements += [step.sql, select]
        statements.append("COMMIT")
        selected: list[dict[int, Row]] = [{}]
        with connection.cursor() as cursor:
            # The format of a cursor's parameters is not applied without parameters.
            cursor.execute(";\n".join(statements))
            while True:
                if cursor.description:
                    rows = {int(row[self.id_index]): row for row in cursor.fetchall()}
                    selected.append(rows)
                if not cursor.nextset():
                    break
        assert len(selected) == len(self.steps) + 1
        for index, step in enumerate(self.steps):
            step.before, step.after = selected[index], selected[index + 1]


def connect_plainly(server: Server) -> pymysql.Connection[Any]:
    """A connection that gives values as the server prints them: text, or bytes for what is binary."""
    connection = server.connect(
        conv={},
        client_flag=CLIENT.MULTI_STATEMENTS,
        init_command="SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', innodb_strict_mode = 0",
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == ("1",)
    return connection


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


ID_KIND = Kind("INT", lambda rng: "0", int, 4, unsigned=False)
_GENERATED_KINDS = (
    Kind("BIGINT", lambda rng: "", int, 8, unsigned=False),
    Kind("VARCHAR(30) CHARACTER SET latin1", lambda rng: "", text_of, 32),
)


def make_table(rng: random.Random, dialect: Dialect, schema: str, number: int) -> RandomTable:
    """A table of 1 to 60 columns besides its id, and the steps of its life."""
    row_image = rng.choice(["FULL"] * 7 + ["MINIMAL"] * 2 + ["NOBLOB"])
    columns = _make_columns(rng, dialect)
    primary_key, key_sql = _make_key(rng, columns, has_key=row_image != "FULL" or rng.random() < 0.8)
    name = f"{rng.choice(_ODD_NAMES)}{number}"
    engine = rng.choice(["InnoDB", "InnoDB", "InnoDB", "MyISAM"])
    definitions = [f"{column.quoted} {column.definition}" for column in columns]
    create = (
        f"CREATE TABLE {schema}.{quote_name(name)} ({', '.join([*definitions, *key_sql])}) ENGINE = {engine}"
    )
    in_transaction = engine == "InnoDB" and rng.random() < 0.5
    table = RandomTable(
        schema, name, columns, primary_key, create, row_image, in_transaction, [], dialect.logs_generated
    )
    _make_steps(rng, table)
    for step in table.steps:
        step.written += _written_by_server(table, step.operation, dialect)
    return table


def _make_columns(rng: random.Random, dialect: Dialect) -> list[RandomColumn]:
    count = rng.choice([1, 2, 3, 5, 8, rng.randint(1, 60)])
    makers = kinds_of(dialect)
    columns: list[RandomColumn] = []
    size = 0
    for index in range(count):
        kind = rng.choice(makers)(rng, dialect)
        size += kind.size
        if size > _MAX_ROW_SIZE:
            break
        columns.append(_make_column(rng, dialect, kind, index))
    id_column = RandomColumn(_make_name(rng, count), "INT NOT NULL", ID_KIND, is_nullable=False)
    columns.insert(rng.choice([0, len(columns), rng.randint(0, len(columns))]), id_column)
    if dialect.has_documents and rng.random() < 0.3:
        kind = rng.choice(_GENERATED_KINDS)
        expression = f"{id_column.quoted} + 1" if kind.sql == "BIGINT" else f"CONCAT('v', {id_column.quoted})"
        stored = rng.choice(["VIRTUAL", "STORED"])
        definition = f"{kind.sql} GENERATED ALWAYS AS ({expression}) {stored}"
        generated = RandomColumn(
            _make_name(rng, count + 1), definition, kind, is_nullable=True, is_generated=True
        )
        columns.insert(rng.randint(0, len(columns)), generated)
    return columns


def _make_column(rng: random.Random, dialect: Dialect, kind: Kind, index: int) -> RandomColumn:
    is_nullable = rng.random() < 0.7
    definition = f"{kind.sql} {'NULL' if is_nullable else 'NOT NULL'}"
    if is_nullable and dialect.modern and rng.random() < 0.1:
        definition += " INVISIBLE"
    return RandomColumn(_make_name(rng, index), definition, kind, is_nullable)


def _make_name(rng: random.Random, index: int) -> str:
    """Odd, and unique by its number."""
    return f"{rng.choice(_ODD_NAMES)}{index}"


_KEYED_WHOLE = (
    "TINYINT",
    "SMALLINT",
    "MEDIUMINT",
    "INT",
    "BIGINT",
    "DATE",
    "TIME",
    "DECIMAL",
    "YEAR",
    "ENUM",
)


def _make_key(
    rng: random.Random, columns: list[RandomColumn], *, has_key: bool
) -> tuple[list[str], list[str]]:
    """Names of the primary key's columns, in its order, and its SQL: the id, and at times others."""
    if not has_key:
        return [], []
    [id_column] = [column for column in columns if column.kind is ID_KIND]
    parts = [(id_column.name, id_column.quoted)]
    for column in columns:
        if column is id_column or column.is_nullable or rng.random() < 0.7 or len(parts) > 3:
            continue
        if column.kind.sql.startswith(_KEYED_WHOLE):
            parts.append((column.name, column.quoted))
        elif column.kind.sql.startswith("VARCHAR(10)") and "COMPRESSED" not in column.kind.sql:
            parts.append((column.name, f"{column.quoted}(3)"))
    rng.shuffle(parts)
    return [name for name, _ in parts], [f"PRIMARY KEY ({', '.join(sql for _, sql in parts)})"]


def _make_steps(rng: random.Random, table: RandomTable) -> None:
    """Insert, update, insert, update, delete: never two of a kind in a row, so that a stream shows which is which."""
    ids = list(range(1, rng.randint(1, _MAX_INSERTED) + 1))
    later = [100, -100]
    table.steps = [_insert(rng, table, ids), _update(rng, table, ids), _insert(rng, table, later)]
    some = rng.sample(ids + later, rng.randint(1, len(ids) + 1))
    table.steps.append(_update(rng, table, some))
    table.steps.append(_delete(rng, table, rng.sample(ids + later, rng.randint(1, len(ids) + 2))))


def _written(columns: Sequence[RandomColumn]) -> list[RandomColumn]:
    return [column for column in columns if not column.is_generated]


def _written_by_server(table: RandomTable, operation: str, dialect: Dialect) -> list[str]:
    """Columns that a statement writes without naming them."""
    generated = [column for column in table.columns if column.is_generated]
    # No update changes the id, which generated columns depend on.
    touched = _touched(table, dialect) if operation != "insert" else []
    if not dialect.mysql:
        return [column.name for column in generated if column.definition.endswith("STORED")] + touched
    return touched if operation != "insert" else [column.name for column in generated]


def _touched(table: RandomTable, dialect: Dialect) -> list[str]:
    """The first TIMESTAMP column if it is NOT NULL: it has the time of the last change.

    See promote_first_timestamp_column. Not with explicit_defaults_for_timestamp, the default from MySQL 8.0 and
    MariaDB 10.10 on.
    """
    if dialect.version >= ((8,) if dialect.mysql else (10, 10)):
        return []
    first = [column for column in table.columns if column.kind.sql.startswith("TIMESTAMP")][:1]
    return [column.name for column in first if not column.is_nullable]


def _value(rng: random.Random, column: RandomColumn) -> str:
    return "NULL" if column.is_nullable and rng.random() < 0.25 else column.kind.literal(rng)


def _insert(rng: random.Random, table: RandomTable, ids: list[int]) -> Step:
    columns = _written(table.columns)
    rows = (
        ", ".join(str(number) if column.kind is ID_KIND else _value(rng, column) for column in columns)
        for number in ids
    )
    names = ", ".join(column.quoted for column in columns)
    sql = f"INSERT INTO {table.quoted} ({names}) VALUES {', '.join(f'({row})' for row in rows)}"
    return Step("insert", ids, sql, [column.name for column in columns])


def _update(rng: random.Random, table: RandomTable, ids: list[int]) -> Step:
    columns = [column for column in _written(table.columns) if column.kind is not ID_KIND]
    changed = rng.sample(columns, rng.randint(1, len(columns)))
    assignments = ", ".join(f"{column.quoted} = {_value(rng, column)}" for column in changed)
    sql = f"UPDATE {table.quoted} SET {assignments} WHERE {_is_one_of(table, ids)}"
    return Step("update", ids, sql, [column.name for column in changed])


def _delete(rng: random.Random, table: RandomTable, ids: list[int]) -> Step:
    return Step("delete", ids, f"DELETE FROM {table.quoted} WHERE {_is_one_of(table, ids)}")


def _is_one_of(table: RandomTable, ids: list[int]) -> str:
    return f"{table.columns[table.id_index].quoted} IN ({', '.join(map(str, ids))})"
