"""What the benchmarks read: tables and the statements that fill them, as data.

Eight logs are read by everybody; two more serve the project's own measurements. Sizes are those of a full run. All
values are functions of the row's number, so that two runs write the same rows. ``{first}`` and ``{count}`` in a
fill stand for the numbers of one transaction's rows; `bench.numbers` holds 0 to 9999.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

SCHEMA = "bench"
ROWS_PER_TRANSACTION = 5000
QUICK_SHARE = 10
#: A run has one such part of the rows: 10 is a tenth, and 1/5 five times as many.
Share = int | Fraction

_NUMBERED = (
    f"FROM (SELECT n + {{first}} AS n FROM {SCHEMA}.numbers WHERE n < {{count}}) AS numbered ORDER BY n"
)
_BETWEEN = "BETWEEN {first} AND {first} + {count} - 1"
_WORDS = "'ash','birch','cedar','elm','fir','hazel','larch','maple','oak','pine','rowan','willow'"


def _hex(number: str, digits: int = 32) -> str:
    """Hexadecimal digits that look random. 9.6 and later have MD5 only as a component."""
    return f"LEFT(SHA2({number}, 256), {digits})"


@dataclass(frozen=True)
class Fill:
    """One statement that is run for ``rows`` rows, numbers from 0 on; each run is a transaction."""

    statement: str
    rows: int
    rows_per_transaction: int = ROWS_PER_TRANSACTION

    def statements(self, share: Share) -> Iterator[str]:
        for first in range(0, self.rows // share, self.rows_per_transaction):
            count = min(self.rows_per_transaction, self.rows // share - first)
            yield self.statement.format(first=first, count=count)


@dataclass(frozen=True)
class Workload:
    """One log. ``tables`` are CREATE statements, which are not logged; ``fills`` are run one after another.

    ``left_out`` names contestants that take minutes for this log.
    """

    name: str
    what: str
    tables: tuple[str, ...]
    fills: tuple[Fill, ...]
    # No part of repr(): the log in the cache does not depend on it.
    left_out: tuple[str, ...] = field(default=(), repr=False)

    @property
    def table_names(self) -> list[str]:
        return [
            table.split("(", 1)[0].split()[-1] for table in self.tables if table.startswith("CREATE TABLE")
        ]

    @property
    def has_json(self) -> bool:
        return any(" JSON" in table for table in self.tables)

    def row_changes(self, share: Share) -> int:
        return sum(fill.rows // share for fill in self.fills)


def _insert(table: str, rows: int, *values: str) -> Fill:
    return Fill(f"INSERT INTO {SCHEMA}.{table} SELECT {', '.join(values)} {_NUMBERED}", rows)


_BULK = Workload(
    "bulk",
    "bulk rows of a 4-column and a 19-column table",
    (
        f"""CREATE TABLE {SCHEMA}.clicks (
            id BIGINT UNSIGNED PRIMARY KEY, account INT UNSIGNED NOT NULL, page VARCHAR(200) NOT NULL,
            clicked TIMESTAMP NOT NULL)""",
        f"""CREATE TABLE {SCHEMA}.orders (
            id BIGINT UNSIGNED PRIMARY KEY, customer INT UNSIGNED NOT NULL,
            status ENUM('new','paid','packed','sent','returned') NOT NULL, priority TINYINT NOT NULL,
            quantity SMALLINT UNSIGNED NOT NULL, amount DECIMAL(12,2) NOT NULL, tax DECIMAL(6,4) NOT NULL,
            weight DOUBLE, score FLOAT, is_paid BOOLEAN NOT NULL, ordered DATE NOT NULL, created DATETIME(6) NOT NULL,
            changed TIMESTAMP NULL, email VARCHAR(120) NOT NULL, name VARCHAR(80) NOT NULL, note TEXT,
            code CHAR(12) NOT NULL, token BINARY(16) NOT NULL, extra JSON)""",
    ),
    (
        _insert(
            "clicks",
            230_000,
            "n",
            "n * 7919 % 100003",
            f"CONCAT('https://shop.example.com/', {_hex('n')}, '/', {_hex('n + 1', 64)}, '?ref=newsletter&page=', n)",
            "FROM_UNIXTIME(1700000000 + n * 37)",
        ),
        _insert(
            "orders",
            150_000,
            "n",
            "n * 7919 % 100003",
            "1 + n % 5",
            "n % 256 - 128",
            "n % 65536",
            "n * 7919 % 10000000000 / 100",
            "n % 100 + 0.1925",
            "n / 7",
            "n / 3",
            "n % 2",
            "DATE '2020-01-01' + INTERVAL n % 2000 DAY",
            "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 1234567 MICROSECOND",
            "IF(n % 3, FROM_UNIXTIME(1700000000 + n * 37), NULL)",
            "CONCAT('customer', n, '@mail.example.com')",
            f"CONCAT('Zoë ', ELT(1 + n % 12, {_WORDS}), ' Müller-', n)",
            f"IF(n % 10, CONCAT('Please leave it with the neighbour: ', {_hex('n')}, ' ', n), NULL)",
            "LPAD(HEX(n), 12, 'X')",
            f"UNHEX({_hex('n')})",
            "JSON_OBJECT('gift', n % 2 = 0, 'coupon', CONCAT('C', n), 'points', n % 1000)",
        ),
        Fill(
            f"UPDATE {SCHEMA}.orders SET status = 4, amount = amount + 1.50, changed = FROM_UNIXTIME(1710000000 + id)"
            f" WHERE id {_BETWEEN}",
            100_000,
        ),
        Fill(f"DELETE FROM {SCHEMA}.orders WHERE id {_BETWEEN}", 50_000),
    ),
)

_SMALL = Workload(
    "small",
    "small transactions of one row each",
    (
        f"""CREATE TABLE {SCHEMA}.accounts (
            id BIGINT UNSIGNED PRIMARY KEY, owner VARCHAR(80) NOT NULL, balance DECIMAL(12,2) NOT NULL,
            opened DATE NOT NULL, changed DATETIME(3) NOT NULL, remark VARCHAR(200))""",
        # Four transactions for each account: opened, changed twice, then closed if its number is odd.
        f"""CREATE PROCEDURE {SCHEMA}.transact(first INT, many INT)
            BEGIN
                DECLARE i INT DEFAULT first;
                DECLARE k INT;
                WHILE i < first + many DO
                    SET k = i DIV 4;
                    IF i % 4 = 0 THEN
                        INSERT INTO {SCHEMA}.accounts VALUES (
                            k, CONCAT('owner ', k, ' of an account'), k, DATE '2020-01-01' + INTERVAL k % 2000 DAY,
                            TIMESTAMP '2024-01-01 00:00:00' + INTERVAL k SECOND, CONCAT('opened by ', {_hex("k")},
                                ' on behalf of ', {_hex("k + 1", 64)}, ', by telephone'));
                    ELSEIF i % 4 = 3 AND k % 2 THEN
                        DELETE FROM {SCHEMA}.accounts WHERE id = k;
                    ELSE
                        UPDATE {SCHEMA}.accounts SET balance = balance + 1.25, changed = changed + INTERVAL 1 SECOND
                            WHERE id = k;
                    END IF;
                    SET i = i + 1;
                END WHILE;
            END""",
    ),
    (Fill(f"CALL {SCHEMA}.transact({{first}}, {{count}})", 56_000),),
)

_WIDE_COLUMNS = (
    *((f"i{index} INT NOT NULL", f"n * {index + 3} - 50000") for index in range(30)),
    *((f"b{index} BIGINT", f"n * {10**9 + index}") for index in range(15)),
    *((f"s{index} SMALLINT NOT NULL", f"n % {1000 + index}") for index in range(10)),
    *((f"t{index} VARCHAR(40) NOT NULL", f"CONCAT('text {index} of ', n)") for index in range(20)),
    *((f"a{index} DECIMAL(10,2)", f"n % 100000 + 0.{index + 10}") for index in range(9)),
    *(
        (f"d{index} DATETIME", f"TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n + {index} MINUTE")
        for index in range(9)
    ),
    # Every row has NULLs, as wide tables do.
    *((f"x{index} DOUBLE", f"IF((n + {index}) % 2, n / 7, NULL)") for index in range(6)),
)
_WIDE = Workload(
    "wide",
    "a table of 100 columns",
    (
        f"CREATE TABLE {SCHEMA}.wide (id INT PRIMARY KEY,"
        f" {', '.join(definition for definition, _ in _WIDE_COLUMNS)})",
    ),
    (_insert("wide", 30_000, "n", *(value for _, value in _WIDE_COLUMNS)),),
)

_JSON = Workload(
    "json",
    "JSON documents of about 600 bytes",
    (f"CREATE TABLE {SCHEMA}.documents (id INT PRIMARY KEY, document JSON NOT NULL, tags JSON)",),
    (
        _insert(
            "documents",
            40_000,
            "n",
            f"""JSON_OBJECT(
                'id', n, 'kind', 'page_view', 'session', {_hex("n")}, 'big', n * 10000000000, 'ratio', n / 7e0,
                'valid', n % 2 = 0, 'nothing', NULL, 'price', CAST(n / 100 AS DECIMAL(10,2)),
                'at', CAST(TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n SECOND AS JSON),
                'user', JSON_OBJECT('name', CONCAT('Zoë ', n), 'mail', CONCAT('user', n, '@example.com'),
                    'address', JSON_OBJECT('street', CONCAT('Rue des Érables ', n % 300), 'zip', LPAD(n, 6, '0'))),
                'items', JSON_ARRAY(
                    JSON_OBJECT('sku', CONCAT('S', n), 'count', n % 9, 'cents', n * 3),
                    JSON_OBJECT('sku', CONCAT('T', n), 'count', n % 5, 'cents', n * 100),
                    JSON_OBJECT('sku', CONCAT('U', n), 'count', n % 7, 'cents', n)),
                'path', JSON_ARRAY('home', 'catalogue', 'trees', 'oak', 'basket'))""",
            "JSON_ARRAY(n, n + 1, n + 2, 'oak', 'ash', 'elm')",
        ),
    ),
)

_DECIMALS = Workload(
    "decimals",
    "decimals and temporals",
    (
        f"""CREATE TABLE {SCHEMA}.measures (
            id INT PRIMARY KEY, d5_0 DECIMAL(5,0) NOT NULL, d10_2 DECIMAL(10,2) NOT NULL,
            d12_4 DECIMAL(12,4) NOT NULL, d18_9 DECIMAL(18,9) NOT NULL, d30_10 DECIMAL(30,10) NOT NULL,
            day DATE NOT NULL, at DATETIME NOT NULL, at3 DATETIME(3) NOT NULL, at6 DATETIME(6) NOT NULL,
            stamp TIMESTAMP NOT NULL, stamp6 TIMESTAMP(6) NOT NULL, clock TIME NOT NULL,
            clock3 TIME(3) NOT NULL, year YEAR NOT NULL)""",
    ),
    (
        _insert(
            "measures",
            150_000,
            "n",
            "n % 99999 - 50000",
            "n * 7919 % 9999999 / 100 - 20000",
            "n * 7919 % 99999999 / 10000",
            "n * 12345.678901234 / 1000 - 1000",
            "n * 1234567890123.4567890123 - 1",
            "DATE '1990-01-01' + INTERVAL n % 20000 DAY",
            "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n SECOND",
            "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 1234000 MICROSECOND",
            "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 1234567 MICROSECOND",
            "FROM_UNIXTIME(1700000000 + n * 37)",
            "FROM_UNIXTIME(1700000000 + n * 37.123456)",
            "SEC_TO_TIME(n * 17 % 1600000 - 800000)",
            "SEC_TO_TIME(n * 17.125 % 1600000 - 800000)",
            "1901 + n % 250",
        ),
    ),
)

_STRINGS = Workload(
    "strings",
    "strings: utf8mb4, latin1, binary, labels",
    (
        f"""CREATE TABLE {SCHEMA}.texts (
            id INT PRIMARY KEY, code CHAR(20) NOT NULL, short VARCHAR(50) NOT NULL, plain VARCHAR(300) NOT NULL,
            accents VARCHAR(100) NOT NULL, asian VARCHAR(100) NOT NULL, western VARCHAR(100) CHARACTER SET latin1
            NOT NULL, letter CHAR(36) CHARACTER SET ascii NOT NULL, body TEXT, hash VARBINARY(32) NOT NULL,
            thumbnail BLOB, state ENUM('draft','ready','gone') NOT NULL, flags SET('hot','new','sale') NOT NULL)""",
    ),
    (
        _insert(
            "texts",
            80_000,
            "n",
            "CONCAT('code-', n)",
            "CONCAT('name ', n)",
            f"CONCAT('A plain sentence about trees, number ', n, ': ', {_hex('n', 64)}, {_hex('n + 1')})",
            "CONCAT('Façade, Größe, Ærø, naïveté, señor: ', n)",
            "CONCAT('東京の天気 ', n, ' 晴れのち曇り')",
            "CONCAT('Müller & Söhne, Straße ', n)",
            f"CONCAT({_hex('n', 8)}, '-aaaa-bbbb-cccc-', {_hex('n + 1', 12)})",
            "IF(n % 10, REPEAT(CONCAT('paragraph ', n, '. '), 8), NULL)",
            "UNHEX(SHA2(n, 256))",
            f"IF(n % 4, REPEAT(UNHEX({_hex('n')}), 4), NULL)",
            "1 + n % 3",
            "n % 8",
        ),
    ),
)

# Logs that no reader can prepare for. An update of ten columns of a hundred has another image than the one before it,
# and none of 2,000 tables has two changes in a row.
_SUBSET_COLUMNS = 99
_TABLES = 2000
_SUBSETS = Workload(
    "subsets",
    "MINIMAL images, ten columns of a hundred in varying combinations",
    (
        f"CREATE TABLE {SCHEMA}.subsets (id INT PRIMARY KEY,"
        f" {', '.join(f'c{index} INT NOT NULL DEFAULT 0' for index in range(_SUBSET_COLUMNS))})",
        f"INSERT INTO {SCHEMA}.subsets (id) VALUES (1)",
        f"""CREATE PROCEDURE {SCHEMA}.update_subsets(first INT, many INT)
            BEGIN
                DECLARE i INT DEFAULT first;
                DECLARE k INT;
                SET SESSION binlog_row_image = MINIMAL;
                WHILE i < first + many DO
                    SET k = 0, @text = 'UPDATE {SCHEMA}.subsets SET ';
                    WHILE k < 10 DO
                        SET @text = CONCAT(@text, IF(k, ',', ''), 'c',
                            9 * k + CONV(SUBSTR(SHA2(i, 256), k + 1, 1), 16, 10) % 9, '=', i + 1);
                        SET k = k + 1;
                    END WHILE;
                    SET @text = CONCAT(@text, ' WHERE id = 1');
                    PREPARE statement FROM @text;
                    EXECUTE statement;
                    SET i = i + 1;
                END WHILE;
            END""",
    ),
    (Fill(f"CALL {SCHEMA}.update_subsets({{first}}, {{count}})", 20_000),),
)
MANY = Workload(
    "many",
    f"{_TABLES:,} tables in rotation",
    (
        f"""CREATE PROCEDURE {SCHEMA}.make_tables()
            BEGIN
                DECLARE i INT DEFAULT 0;
                WHILE i < {_TABLES} DO
                    SET @text = CONCAT('CREATE TABLE {SCHEMA}.many', i, ' (id INT PRIMARY KEY, name VARCHAR(40),'
                        ' amount DECIMAL(10,2), changed DATETIME)');
                    PREPARE statement FROM @text;
                    EXECUTE statement;
                    SET i = i + 1;
                END WHILE;
            END""",
        f"CALL {SCHEMA}.make_tables()",
        f"""CREATE PROCEDURE {SCHEMA}.fill_tables(first INT, many INT)
            BEGIN
                DECLARE i INT DEFAULT first;
                WHILE i < first + many DO
                    SET @text = CONCAT('INSERT INTO {SCHEMA}.many', i % {_TABLES}, ' VALUES (', i,
                        ', "name", 1.50, "2024-01-01 00:00:00")');
                    PREPARE statement FROM @text;
                    EXECUTE statement;
                    SET i = i + 1;
                END WHILE;
            END""",
    ),
    (Fill(f"CALL {SCHEMA}.fill_tables({{first}}, {{count}})", 10_000),),
    # asyncmy asks information_schema at each table map: ten minutes and more.
    left_out=("asyncmy",),
)

COMPARED = (_BULK, _SMALL, _WIDE, _JSON, _DECIMALS, _STRINGS, _SUBSETS, MANY)

FIXED = Workload(
    "fixed",
    "numbers of fixed width",
    (
        f"""CREATE TABLE {SCHEMA}.points (
            id BIGINT PRIMARY KEY, x DOUBLE NOT NULL, y DOUBLE NOT NULL, z FLOAT NOT NULL, a INT NOT NULL,
            b INT UNSIGNED NOT NULL, c SMALLINT NOT NULL, d TINYINT NOT NULL, e BIGINT NOT NULL,
            f MEDIUMINT NOT NULL)""",
    ),
    (
        _insert(
            "points",
            300_000,
            *(
                "n",
                "n / 7",
                "n / 11",
                "n / 3",
                "n - 50000",
                "n * 3",
                "n % 30000",
                "n % 100",
                "n * 1000000",
                "n",
            ),
        ),
    ),
)

# One table of eight equal columns each: table name -> column definition, value.
MICRO_COLUMNS: dict[str, tuple[str, str]] = {
    "int": ("INT NOT NULL", "n * 3 + {i}"),
    "decimal_5_0": ("DECIMAL(5,0) NOT NULL", "n - 500 + {i}"),
    "decimal_10_2": ("DECIMAL(10,2) NOT NULL", "n * 791.37 - 20000 + {i}"),
    "decimal_12_4": ("DECIMAL(12,4) NOT NULL", "n * 79.3711 - 20000 + {i}"),
    "decimal_18_9": ("DECIMAL(18,9) NOT NULL", "n * 12345.678901234 + {i}"),
    "decimal_30_10": ("DECIMAL(30,10) NOT NULL", "n * 1234567890123.4567890123 + {i}"),
    "date": ("DATE NOT NULL", "DATE '1990-01-01' + INTERVAL n + {i} DAY"),
    "datetime": ("DATETIME NOT NULL", "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 77 + {i} SECOND"),
    "datetime_3": (
        "DATETIME(3) NOT NULL",
        "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 1234000 + {i} MICROSECOND",
    ),
    "datetime_6": (
        "DATETIME(6) NOT NULL",
        "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 1234567 + {i} MICROSECOND",
    ),
    "timestamp": ("TIMESTAMP NOT NULL", "FROM_UNIXTIME(1700000000 + n * 37 + {i})"),
    "timestamp_6": ("TIMESTAMP(6) NOT NULL", "FROM_UNIXTIME(1700000000 + n * 37.123456 + {i})"),
    "time": ("TIME NOT NULL", "SEC_TO_TIME(n * 1733 % 1600000 - 800000 + {i})"),
    "time_6": ("TIME(6) NOT NULL", "SEC_TO_TIME(n * 1733.123456 % 1600000 - 800000 + {i})"),
    "ascii_text": ("VARCHAR(80) NOT NULL", "CONCAT('the name of a tree ', n + {i})"),
    "accented_text": ("VARCHAR(80) NOT NULL", "CONCAT('Größe, naïveté: ', n + {i})"),
    "latin1_text": ("VARCHAR(80) CHARACTER SET latin1 NOT NULL", "CONCAT('Größe, naïveté: ', n + {i})"),
    "ascii_latin1_text": (
        "VARCHAR(80) CHARACTER SET latin1 NOT NULL",
        "CONCAT('the name of a tree ', n + {i})",
    ),
    "long_text": ("TEXT NOT NULL", f"REPEAT({_hex('n + {i}')}, 10)"),
    "binary": ("BINARY(16) NOT NULL", f"UNHEX({_hex('n + {i}')})"),
    "enum": ("ENUM('draft','ready','gone') NOT NULL", "1 + (n + {i}) % 3"),
    "set": ("SET('hot','new','sale') NOT NULL", "(n + {i}) % 8"),
    "json_number": ("JSON NOT NULL", "CAST(n + {i} AS JSON)"),
    "json_small_object": (
        "JSON NOT NULL",
        "JSON_OBJECT('gift', n % 2 = 0, 'coupon', CONCAT('C', n), 'points', n)",
    ),
    "json_array_of_8": (
        "JSON NOT NULL",
        "JSON_ARRAY(n, {i}, 'oak', 'ash', n / 7e0, true, null, n * 1000000)",
    ),
    "json_nested": (
        "JSON NOT NULL",
        f"JSON_OBJECT('user', JSON_OBJECT('name', CONCAT('Zoë ', n), 'mail', {_hex('n')}),"
        " 'items', JSON_ARRAY(JSON_OBJECT('sku', 'S1', 'count', n), JSON_OBJECT('sku', 'T2', 'count', {i})))",
    ),
}
MICRO_WIDTH = 8
MICRO_ROWS = 1000

MICRO = Workload(
    "micro",
    "one table for each kind of value",
    (
        f"CREATE TABLE {SCHEMA}.m_key (id INT PRIMARY KEY)",
        *(
            f"CREATE TABLE {SCHEMA}.m_{name} (id INT PRIMARY KEY,"
            f" {', '.join(f'c{index} {definition}' for index in range(MICRO_WIDTH))})"
            for name, (definition, _) in MICRO_COLUMNS.items()
        ),
    ),
    (
        _insert("m_key", MICRO_ROWS, "n"),
        *(
            _insert(
                f"m_{name}",
                MICRO_ROWS,
                "n",
                *(value.replace("{i}", str(index)) for index in range(MICRO_WIDTH)),
            )
            for name, (_, value) in MICRO_COLUMNS.items()
        ),
    ),
)
