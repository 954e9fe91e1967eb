"""Hex dumps, line by line; dumps of real logs are compared with the tools' elsewhere."""

from __future__ import annotations

import struct

import pytest

from replica.mysqlbinlog.hexdump import mariadb_hexdump, mysql_hexdump

_EVENT = struct.pack("<IBIIIH", 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("body", "dumped"),
    [
        (b"", []),
        (b"aZ9 |", ["# 00000017 61 5a 39 20 7c                                   |aZ9..|"]),
        (b"x" * 8, ["# 00000017 78 78 78 78 78 78 78 78                          |xxxxxxxx|"]),
        (
            b"x" * 17,
            [
                "# 00000017 78 78 78 78 78 78 78 78  78 78 78 78 78 78 78 78 |xxxxxxxxxxxxxxxx|",
                "# 00000027 78                                               |x|",
            ],
        ),
    ],
)
def test_mysqls_hex_dump(body: bytes, dumped: list[str]) -> None:
    head = [
        "# Position  Timestamp   Type   Source ID        Size      Source Pos    Flags ",
        "# 00000004 01 00 00 00   02   03 00 00 00   04 00 00 00   05 00 00 00   06 00",
    ]
    assert mysql_hexdump(_EVENT + body, 4).decode().splitlines() == [*head, *dumped]


def test_mysqls_hex_dump_of_a_longer_header_takes_nothing_apart() -> None:
    assert mysql_hexdump(_EVENT, 4, 27).decode().splitlines() == []
    assert mysql_hexdump(_EVENT + b"ab", 4, 27).startswith(b"# 00000004 01 00 ")


def test_mariadbs_hex_dump() -> None:
    head = [
        "# Position",
        "#           |Timestamp   |Type |Master ID   |Size        |Master Pos  |Flags",
        "#        4  |01 00 00 00 |02   |03 00 00 00 |04 00 00 00 |05 00 00 00 |06 00",
        "#",
    ]
    assert mariadb_hexdump(_EVENT, 4).decode().splitlines() == head
    shown = mariadb_hexdump(_EVENT + b"a b\x00'~\x7f8", 4).decode().splitlines()
    assert shown == [*head, "#       17  61 20 62 00 27 7e 7f 38                           |a b.'~.8|", "#"]
