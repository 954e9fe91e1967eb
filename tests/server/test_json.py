"""Binary JSON of a real MySQL: decoded values and texts against SELECT and mysqlbinlog, partial updates applied."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from protocol.values.jsonb import MAX_DEPTH, JsonOpaque, JsonValue, decode_json
from protocol.values.jsonb_diff import apply_json_diffs, read_json_diffs
from protocol.values.jsonb_text import json_text, render_json
from tests.support.servers import Server

WRITE_ROWS, UPDATE_ROWS, PARTIAL_UPDATE_ROWS = 30, 31, 39
HEADER, CHECKSUM = 19, 4


class Log:
    """What a server writes to its log from now on."""

    def __init__(self, server: Server) -> None:
        self.server = server
        [(basename,)] = server.query("SELECT @@log_bin_basename")
        file, self.start, *_ = server.query("SHOW BINARY LOGS")[-1]
        self.path = f"{basename.rpartition('/')[0]}/{file}"

    def bodies(self, *types: int) -> Iterator[bytes]:
        data = self.server.exec("tail", "-c", f"+{self.start + 1}", self.path)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 9 : at + 13], "little")
            if data[at + 4] in types:
                yield data[at + HEADER : at + size - CHECKSUM]
            at += size

    def documents(self) -> dict[int, bytes]:
        """The inserted rows of tables (id INT, j JSON)."""
        found = {}
        for body in self.bodies(WRITE_ROWS):
            rows = body[8:]
            # Extra data's length, column count, columns present.
            rows = rows[int.from_bytes(rows[:2], "little") :]
            assert rows[:2] == b"\x02\xff"
            at = 2
            while at < len(rows):
                assert rows[at] == 0, "a NULL"
                size = int.from_bytes(rows[at + 5 : at + 9], "little")
                found[int.from_bytes(rows[at + 1 : at + 5], "little")] = rows[at + 9 : at + 9 + size]
                at += 9 + size
        return found

    def printed(self) -> dict[int, str]:
        """What mysqlbinlog prints for the same rows, without its quotes."""
        output = self.server.exec(
            "mysqlbinlog", "-vv", "--base64-output=decode-rows", f"--start-position={self.start}", self.path
        )
        rows = re.findall(rb"^###   @1=(\d+) .*\n###   @2='(.*)' /\* JSON", output, re.MULTILINE)
        return {int(number): _unquote(text.decode()) for number, text in rows}


_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\\": "\\", "'": "'"}


def _unquote(text: str) -> str:
    return re.sub(
        r"\\(?:x([0-9a-f]{2})|(.))",
        lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]],
        text,
    )


@pytest.fixture
def connection(mysql97: Server) -> Iterator[pymysql.Connection[Any]]:
    with mysql97.fresh_schema() as schema, mysql97.connect(database=schema) as connection:
        connection.cursor().execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, j JSON NOT NULL)")
        yield connection


def _random_string(rng: random.Random) -> str:
    size = rng.choice((0, 1, 3, 10, 10, 127, 128, 300))
    alphabet = rng.choice(("abc", "aé€😀", "".join(map(chr, range(0x20))) + "\"\\/'\x7f%"))
    return "".join(rng.choices(alphabet, k=size))


def _random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 4 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((-1, 1)) * rng.randrange(2 ** rng.randrange(1, 64))
    if kind == 2:
        return rng.randrange(2**63, 2**64)
    if kind in (3, 4):
        return rng.uniform(-10, 10) * 10.0 ** rng.randrange(-25, 25)
    if kind == 5:
        return _random_string(rng)
    count = rng.choice((0, 1, 2, 5, 30))
    if kind == 6:
        return [_random_value(rng, depth + 1) for _ in range(count if depth < 2 else count % 4)]
    return {
        _random_string(rng): _random_value(rng, depth + 1) for _ in range(count if depth < 2 else count % 4)
    }


def _insert(connection: pymysql.Connection[Any], values: list[str]) -> None:
    connection.cursor().execute("INSERT INTO t (j) VALUES " + ", ".join(f"({value})" for value in values))


def _texts(connection: pymysql.Connection[Any]) -> dict[int, str]:
    cursor = connection.cursor()
    cursor.execute("SELECT id, CAST(j AS CHAR CHARACTER SET utf8mb4) FROM t")
    return dict(cursor.fetchall())


def _check(connection: pymysql.Connection[Any], log: Log) -> dict[int, JsonValue]:
    """Texts of all rows equal SELECT's and mysqlbinlog's; the values."""
    documents = log.documents()
    texts = _texts(connection)
    printed = log.printed()
    assert documents.keys() == texts.keys() == printed.keys()
    for number, data in documents.items():
        assert render_json(decode_json(data)) == texts[number]
        assert json_text(data) == printed[number]
    return {number: decode_json(data) for number, data in documents.items()}


def test_random_documents(seed: int, mysql97: Server, connection: pymysql.Connection[Any]) -> None:
    rng = random.Random(seed)
    log = Log(mysql97)
    values = [_random_value(rng) for _ in range(500)]
    for at in range(0, len(values), 50):
        _insert(connection, [connection.escape(json.dumps(value)) for value in values[at : at + 50]])
    decoded = _check(connection, log)
    assert len(decoded) == len(values)
    # Doubles that are whole numbers were given as such, and 1.0 == 1.
    assert [decoded[number] for number in sorted(decoded)] == values
    print(f"{len(values)} documents, {sum(map(len, log.documents().values()))} bytes")


@pytest.mark.parametrize("count", [3, 20_000])
def test_large_documents(mysql97: Server, connection: pymysql.Connection[Any], count: int) -> None:
    """Above 64 KB: the layout with 4-byte offsets."""
    value = {
        "numbers": [*range(-70_000, 70_000, 7)],
        "members": {f"k{index}": index for index in range(count)},
        "text": "x" * 70_000,
        "unsigned": 2**32 - 1,
        "doubles": [1.5] * count,
    }
    log = Log(mysql97)
    _insert(
        connection, [connection.escape(json.dumps(value)), connection.escape(json.dumps("y" * 2_100_000))]
    )
    assert next(iter(log.documents().values()))[0] == 1
    assert list(_check(connection, log).values()) == [value, "y" * 2_100_000]


OPAQUES: list[tuple[str, JsonValue]] = [
    ("CAST(CAST('2020-01-02' AS DATE) AS JSON)", date(2020, 1, 2)),
    (
        "CAST(CAST('2020-01-02 03:04:05.123456' AS DATETIME(6)) AS JSON)",
        datetime(2020, 1, 2, 3, 4, 5, 123456),
    ),
    ("CAST(CAST('-838:59:59' AS TIME) AS JSON)", -timedelta(hours=838, minutes=59, seconds=59)),
    ("JSON_ARRAY(CAST('-00:00:00.000001' AS TIME(6)))", [timedelta(microseconds=-1)]),
    ("JSON_ARRAY(CAST('0000-00-00' AS DATE))", ["0000-00-00"]),
    ("JSON_ARRAY(CAST('2020-00-00 00:00:01' AS DATETIME))", ["2020-00-00 00:00:01.000000"]),
    ("CAST(1.50 AS JSON)", Decimal("1.50")),
    ("CAST(-0.00 AS JSON)", Decimal("0.00")),
    ("CAST(0 AS JSON)", 0),
    ("JSON_ARRAY(0.000000001)", [Decimal("0.000000001")]),
    ("JSON_ARRAY(CAST(REPEAT('9', 65) AS DECIMAL(65)))", [Decimal("9" * 65)]),
    ("CAST(12345678901234567890.1234567890 AS JSON)", Decimal("12345678901234567890.1234567890")),
    ("CAST(x'cafe' AS JSON)", JsonOpaque(b"\xca\xfe", 15)),
    ("JSON_ARRAY(b'101')", [JsonOpaque(b"\5", 15)]),
    ("JSON_OBJECT('k', REPEAT(x'ab', 200))", {"k": JsonOpaque(b"\xab" * 200, 15)}),
    ("JSON_OBJECT('k', CAST('x' AS BINARY))", {"k": JsonOpaque(b"x", 15)}),
    ("JSON_ARRAY(1e0, 1e15, 1e100, -0e0)", [1.0, 1e15, 1e100, 0.0]),
    ("JSON_ARRAY(TIMESTAMP'2020-01-02 03:04:05', CAST(2005 AS YEAR))", [datetime(2020, 1, 2, 3, 4, 5), 2005]),
]


def test_values_that_json_has_no_type_for(mysql97: Server, connection: pymysql.Connection[Any]) -> None:
    log = Log(mysql97)
    connection.cursor().execute("SET sql_mode = ''")
    _insert(connection, [sql for sql, _ in OPAQUES])
    decoded = _check(connection, log)
    assert list(decoded.values()) == [value for _, value in OPAQUES]


def test_values_of_columns(mysql97: Server, connection: pymysql.Connection[Any]) -> None:
    cursor = connection.cursor()
    cursor.execute(
        "CREATE TABLE c (ts TIMESTAMP(3), y YEAR, b BIT(9), e ENUM('a', 'b'), s SET('a', 'b'), f FLOAT, t TINYBLOB,"
        " d DECIMAL(10, 3), v VARBINARY(4), c CHAR(3) CHARACTER SET latin1)"
    )
    cursor.execute(
        "INSERT INTO c VALUES ('2020-01-02 03:04:05.678', 2021, 5, 'b', 'a,b', 0.1, 'zz', 1.5, x'00ff', 'é')"
    )
    log = Log(mysql97)
    _insert(connection, ["(SELECT JSON_ARRAY(ts, y, b, e, s, f, t, d, v, c) FROM c)"])
    [value] = _check(connection, log).values()
    assert value == [
        *(datetime(2020, 1, 2, 3, 4, 5, 678000), 2021, b"\0\5", "b", "a,b", 0.10000000149011612, b"zz"),
        *(Decimal("1.500"), b"\0\xff", "é"),
    ]
    assert isinstance(value, list)
    types = [element.column_type for element in value if isinstance(element, JsonOpaque)]
    assert types == [16, 249, 15]


def test_the_deepest_document(mysql97: Server, connection: pymysql.Connection[Any]) -> None:
    log = Log(mysql97)
    _insert(connection, [f"'{'[' * MAX_DEPTH}{']' * MAX_DEPTH}'"])
    with pytest.raises(pymysql.err.OperationalError, match="maximum depth"):
        _insert(connection, [f"'{'[' * (MAX_DEPTH + 1)}{']' * (MAX_DEPTH + 1)}'"])
    _check(connection, log)


# ---------------------------------------------------------------------------------- partial updates


def _updated(body: bytes, document: JsonValue) -> tuple[JsonValue, bool]:
    """The document after the update of one row, under MINIMAL images, and whether its changes were logged."""
    rows = body[8:]
    rows = rows[int.from_bytes(rows[:2], "little") :]
    # Column count and both bitmaps; before: NULL bits and id.
    assert rows[:3] == b"\x02\x01\x02"
    # After: options, partial bits if the options say so, NULL bits, and the value behind its length.
    after = rows[8:]
    partial = after[0] == 1
    assert after[: 2 + partial] == (b"\x01\x01\x00" if partial else b"\x00\x00")
    data = after[2 + partial :]
    assert int.from_bytes(data[:4], "little") == len(data) - 4
    if partial:
        return apply_json_diffs(document, read_json_diffs(data[4:])), True
    return decode_json(data[4:]), False


def _paths(value: Any, path: str = "$") -> Iterator[str]:
    """A path to every place in a document, and to some that are not there."""
    if isinstance(value, dict):
        yield path + ".new"
        for key, member in value.items():
            yield f"{path}.{json.dumps(key, ensure_ascii=False)}"
            yield from _paths(member, f"{path}.{json.dumps(key, ensure_ascii=False)}")
    elif isinstance(value, list):
        yield from (f"{path}[{len(value) + 2}]", f"{path}[last-{len(value) + 1}]", f"{path}[last]")
        for index, element in enumerate(value):
            yield f"{path}[{index}]"
            yield from _paths(element, f"{path}[{index}]")
    else:
        yield from (path + "[0]", path + "[1]")


def _random_change(rng: random.Random, connection: pymysql.Connection[Any], document: Any) -> str:
    function = rng.choice(("JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"))
    paths = rng.choices([path for path in _paths(document) if path != "$"], k=rng.choice((1, 1, 3)))
    arguments = []
    for path in paths:
        arguments.append(connection.escape(path))
        if function != "JSON_REMOVE":
            value = rng.choice(
                ("'text'", "1.5", "NULL", "7e0", "JSON_ARRAY(1, 2)", "CURRENT_TIME(6)", "x'00ff'")
            )
            arguments.append(value)
    return f"{function}(j, {', '.join(arguments)})"


def test_partial_updates(seed: int, mysql97: Server, connection: pymysql.Connection[Any]) -> None:
    """Random changes: what is applied to the old document is the new one."""
    rng = random.Random(seed)
    cursor = connection.cursor()
    cursor.execute("SET binlog_row_value_options = PARTIAL_JSON, binlog_row_image = MINIMAL")
    # Only changes that make the logged value smaller are logged as such: hence the padding.
    start = {"pad": "z" * 2000, 'q"x\n': [1, [2, {"a": None}], "é"], "c d": {"é": {"x": 1}}, "": [[], {}]}
    kinds = Counter[bool]()
    for _ in range(20):
        cursor.execute("DELETE FROM t")
        log = Log(mysql97)
        cursor.execute("INSERT INTO t VALUES (1, %s)", (json.dumps(start),))
        document = decode_json(log.documents()[1])
        for _ in range(10):
            log = Log(mysql97)
            change = _random_change(rng, connection, document)
            cursor.execute(f"UPDATE t SET j = {change} WHERE id = 1")
            for body in log.bodies(PARTIAL_UPDATE_ROWS, UPDATE_ROWS):
                document, partial = _updated(body, document)
                kinds[partial] += 1
                assert json.loads(render_json(document)) == json.loads(_texts(connection)[1]), change
    print(f"{kinds[True]} partial updates, {kinds[False]} whole ones")
    assert kinds[True] > 50
