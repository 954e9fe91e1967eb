"""Every collation id and every character of the servers' sets, compared with ``protocol.charset``.

The servers convert all one- and two-byte sequences of a set, and the longer ones of those that have them, to
utf8mb4; ours must be the same text. What the server has no character for must not be lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import replica
from protocol.charset import charset_by_name, charset_of_collation
from tests.support.servers import Server

# Sequences of a set's characters: how many bytes, behind which first ones.
SEQUENCES: dict[str, list[tuple[int, bytes]]] = {
    "ujis": [(1, b""), (2, b""), (3, b"\x8f")],
    "eucjpms": [(1, b""), (2, b""), (3, b"\x8f")],
    **{name: [(1, b""), (2, b"")] for name in ("big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis")},
    "ucs2": [(2, b"")],
}
# Tested through code points instead: all of them are in these.
UNICODE_SETS = ("utf8mb3", "utf8mb4", "utf16", "utf16le", "utf32")
REPLACEMENTS = ("?", "\ufffd")


def _sets(server: Server) -> list[str]:
    rows = server.query("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    # MySQL 5.6 names it utf8 still.
    return sorted("utf8mb3" if name == "utf8" else name for (name,) in rows)


@contextlib.contextmanager
def _sequences(server: Server, size: int, first: bytes) -> Iterator[tuple[Any, list[bytes]]]:
    """A cursor on a connection with a table `s` of all sequences: the given first bytes and any others."""
    free = size - len(first)
    data = [first + number.to_bytes(free, "big") for number in range(256**free)]
    with server.fresh_schema() as schema, server.connect(database=schema) as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = '', max_error_count = 0")
        cursor.execute("CREATE TABLE s (b VARBINARY(4))")
        for at in range(0, len(data), 8192):
            cursor.execute(
                "INSERT INTO s VALUES " + ",".join(f"(x'{b.hex()}')" for b in data[at : at + 8192])
            )
        yield cursor, data


def _converted(cursor: Any, name: str) -> dict[bytes, str]:
    """Sequence -> the server's text, for those that are one character to the server."""
    cursor.execute(
        f"SELECT b, CAST(CONVERT(CONVERT(b USING {name}) USING utf8mb4) AS BINARY) FROM s"
        f" WHERE CHAR_LENGTH(CONVERT(b USING {name})) = 1"
    )
    return {b: text.decode("utf-8", "surrogatepass") for b, text in cursor if text}


def test_every_collation(server: Server) -> None:
    mariadb = server.family == "mariadb"
    table = "COLLATIONS"
    if mariadb and server.version >= (10, 10):
        table = "COLLATION_CHARACTER_SET_APPLICABILITY"
    rows = server.query(f"SELECT ID, CHARACTER_SET_NAME FROM information_schema.{table}")
    assert len(rows) > 200
    wrong = []
    for collation, name in rows:
        charset = charset_of_collation(collation, mariadb)
        if charset is None or charset is not charset_by_name(name):
            wrong.append((collation, name, charset))
    assert not wrong


def test_every_set_is_known(server: Server) -> None:
    for name in _sets(server):
        charset = charset_by_name(name)
        assert charset is not None, name
        [(max_bytes,)] = server.query(
            "SELECT MAXLEN FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME IN (%s, %s)",
            name,
            "utf8" if name == "utf8mb3" else name,
        )
        assert charset.max_bytes == max_bytes, name


@pytest.mark.parametrize(("size", "first"), [(1, b""), (2, b""), (3, b"\x8f")])
def test_every_character(server: Server, size: int, first: bytes) -> None:
    wrong: list[tuple[str, str, str, str]] = []
    compared = 0
    with _sequences(server, size, first) as (cursor, _):
        for name in sorted(set(_sets(server)) - {"binary", *UNICODE_SETS}):
            if (size, first) not in SEQUENCES.get(name, [(1, b"")]):
                continue
            charset = charset_by_name(name)
            assert charset is not None
            assert charset.decode is not None
            for data, expected in _converted(cursor, name).items():
                if not _is_one_sequence(name, data):
                    continue
                text = charset.decode(data)
                if expected in REPLACEMENTS and text != expected:
                    _assert_kept(name, data, text)
                    continue
                compared += 1
                if text != expected:
                    wrong.append((name, data.hex(), expected, text))
                assert charset.codec is None or data.decode(charset.codec, charset.errors) == text
    assert not wrong, f"{len(wrong)} wrong: {wrong[:20]}"
    assert compared > {1: 6000, 2: 50_000, 3: 13_000}[size]
    print(f"{server.name}: {compared} characters of {size} bytes")


def _is_one_sequence(name: str, data: bytes) -> bool:
    """MySQL counts an ASCII byte with another behind it as one character of some sets, and a kana of one byte."""
    half_width = name in ("sjis", "cp932") and 0xA1 <= data[0] <= 0xDF
    return len(data) == 1 or name == "ucs2" or (data[0] > 0x7F and not half_width)


def _assert_kept(name: str, data: bytes, text: str) -> None:
    """Where the server has no character, ours is Python's, or the bytes as surrogate escapes."""
    assert not set(text) & set(REPLACEMENTS), (name, data, text)
    if any("\ud800" <= character <= "\udfff" for character in text):
        assert text.encode("ascii", "surrogateescape") == data, (name, data, text)


# 8135 holds a character that Python reads as another, 8431 the end of the basic plane, 9030 what comes behind.
GB18030_ROWS = ("8130", "8135", "8336", "8431", "9030", "9439", "e332")


@pytest.mark.parametrize(
    "prefixes", [GB18030_ROWS, pytest.param(None, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_four_byte_characters_of_gb18030(mysql97: Server, prefixes: tuple[str, ...] | None) -> None:
    charset = charset_by_name("gb18030")
    assert charset is not None
    assert charset.decode is not None
    if prefixes is None:
        prefixes = tuple(
            f"{first:02x}{second:02x}" for first in range(0x81, 0xFF) for second in range(0x30, 0x3A)
        )
    ends = [bytes((third, fourth)) for third in range(0x81, 0xFF) for fourth in range(0x30, 0x3A)]
    compared = 0
    with mysql97.connect() as connection, connection.cursor() as cursor:
        for prefix in prefixes:
            sequences = [bytes.fromhex(prefix) + end for end in ends]
            texts = ", ".join(
                f"CONVERT(_gb18030 x'{sequence.hex()}' USING utf8mb4)" for sequence in sequences
            )
            cursor.execute(f"SELECT {texts}")
            row = cursor.fetchone()
            assert row is not None
            for sequence, expected in zip(sequences, row, strict=True):
                if expected != "?":
                    compared += 1
                    assert charset.decode(sequence) == expected, sequence
    assert compared > 4000
    print(f"{compared} characters of gb18030")


@pytest.mark.parametrize("name", UNICODE_SETS)
def test_every_code_point(server: Server, name: str) -> None:
    charset = charset_by_name(name)
    assert charset is not None
    assert charset.decode is not None
    assert charset.codec is not None
    end = 0x10000 if charset.max_bytes == 3 else 0x110000
    stored_name = "utf8" if name == "utf8mb3" else name
    with server.connect() as connection, connection.cursor() as cursor:
        for first in range(0, end, 8192):
            points = [point for point in range(first, first + 8192) if not 0xD800 <= point <= 0xDFFF]
            text = "".join(map(chr, points))
            encoded = text.encode().hex()
            if not encoded:
                continue
            cursor.execute(f"SELECT CAST(CONVERT(_utf8mb4 x'{encoded}' USING {stored_name}) AS BINARY)")
            row = cursor.fetchone()
            assert row is not None
            assert charset.decode(row[0]) == text
            assert row[0].decode(charset.codec, charset.errors) == text


@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6"], indirect=True)
@pytest.mark.parametrize("kind", ["ENUM", "SET"])
async def test_labels_that_are_no_text(server: Server, schema: str, kind: str) -> None:
    """MySQL 9 shows such a label as x'ff'; 5.6 ends the list of labels there, and values are numbers."""
    # 9.7 can make no SET of them.
    label = "X'FF'" if kind == "ENUM" or server.version < (8,) else "'\u00e9'"
    values = {"X'FF'": "\udcff", "'\u00e9'": "\u00e9"}
    expected = [1, 2] if server.version < (8,) else [values[label], "a"]
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, e {kind}({label}, 'a') CHARACTER SET binary)")
    server.query("FLUSH BINARY LOGS")
    server.query(f"INSERT INTO {schema}.t VALUES (1, 1), (2, 2)")
    for start in ("snapshot", replica.BinlogPosition(server.query("SHOW BINARY LOGS")[-1][0], 4)):
        async with replica.connect(
            server.dsn(), tls="disabled", start=start, stop="now", tables=f"{schema}.t"
        ) as stream:
            events = [event async for event in stream if isinstance(event, replica.RowsEvent)]
        rows = [change.after["e"] for event in events for change in event.changes() if change.after]
        assert rows == expected, start
