"""Kinds of columns for random tables on a real server: the type in SQL, random values, and what SELECT's text means.

A kind knows nothing of this project: it turns what the server prints for a value into the Python value that the
project's documentation promises, so that a stream can be compared with it.
"""

from __future__ import annotations

import array
import datetime
import decimal
import ipaddress
import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.selected_values import (
    Raw,
    bytes_of,
    json_equals,
    read_date,
    read_datetime,
    read_json,
    read_time,
    read_timestamp,
    text_of,
)
from tests.support.servers import Server

Literal = Callable[[random.Random], str]

# Letters of many scripts, and those that character sets are known to disagree about.
LETTERS = (
    "aZ09'\"\\`%_,;\n\r\t\0 \x1a\x7f\x80\x9f\xa0"
    "¢£¥§¬¯´·äßéñÿŸŠ€ĐąčęğışőűŁΑΩλςάЁЖяљѓґўאבגשسلاΆمพไทยქართხმՀայքあアｱ゛ヴ亜唖堯丂"
    "日本漢字中国简繁體龍靐한국어힣①Ⅷ㈱№℡∥∞～〜−‖－—―…‥│┐▒█♀⌂\u200b\u3000\ufeff\uffff💾😀𝄞𠀀𪛖"
)


@dataclass(frozen=True)
class Dialect:
    """What the columns of a server may be made of; ``logs_labels`` where the log itself names ENUM and SET labels.

    ``logs_generated``: images of updates and deletes have generated columns.
    """

    mysql: bool
    version: tuple[int, ...]
    logs_labels: bool
    collations: Mapping[str, tuple[str, ...]]
    widths: Mapping[str, int]
    logs_generated: bool = True

    @property
    def modern(self) -> bool:
        """Not MySQL 5.6 or 5.7: invisible columns, SRIDs."""
        return not self.mysql or self.version >= (8,)

    @property
    def has_documents(self) -> bool:
        """JSON, and generated columns, which came with it."""
        return not self.mysql or self.version >= (5, 7, 8)

    @property
    def has_vectors(self) -> bool:
        return self.version >= ((9,) if self.mysql else (11, 7))


@dataclass(frozen=True)
class Kind:
    """One column's type: SQL, a maker of literals, and how SELECT's text compares with a streamed value.

    ``size`` is what a row may need for it, in bytes. ``select`` is the expression to select, ``read`` turns its text
    into the value, ``equals`` compares that with a streamed one.
    """

    sql: str
    literal: Literal
    read: Callable[[Raw], object]
    size: int
    select: str = "{}"
    unsigned: bool | None = None
    equals: Callable[[object, object], bool] = field(
        default=lambda streamed, read: type(streamed) is type(read) and streamed == read
    )


Maker = Callable[[random.Random, Dialect], Kind]


def dialect_of(server: Server, *, logs_labels: bool) -> Dialect:
    mysql = server.family == "mysql"
    collations: dict[str, list[str]] = {}
    column, table = "COLLATION_NAME", "COLLATIONS"
    if not mysql and server.version >= (10, 10):
        column, table = "FULL_COLLATION_NAME", "COLLATION_CHARACTER_SET_APPLICABILITY"
    for name, charset in server.query(f"SELECT {column}, CHARACTER_SET_NAME FROM information_schema.{table}"):
        collations.setdefault(charset, []).append(name)
    sets = server.query("SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS")
    names = {name: tuple(sorted(collations[name])) for name, _ in sets}
    return Dialect(mysql, server.version, logs_labels, names, dict(sets), server.logs_generated)


def hexadecimal(data: bytes) -> str:
    return f"X'{data.hex()}'"


def quoted_text(text: str) -> str:
    """A literal that no sql_mode and no connection character set changes; the server converts it."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


# --------------------------------------------------------------------------------------------- numbers


def integer(rng: random.Random, dialect: Dialect) -> Kind:
    name, size = rng.choice([("TINYINT", 1), ("SMALLINT", 2), ("MEDIUMINT", 3), ("INT", 4), ("BIGINT", 8)])
    attribute = rng.choice(["", "", "UNSIGNED", "UNSIGNED", "ZEROFILL"])
    bits = 8 * size
    low, high = (0, (1 << bits) - 1) if attribute else (-1 << bits - 1, (1 << bits - 1) - 1)
    return Kind(
        f"{name} {attribute}",
        lambda rng: str(rng.choice([low, high, 0, 1, rng.randint(low, high)])),
        int,
        size,
        unsigned=bool(attribute),
    )


def floating(rng: random.Random, dialect: Dialect) -> Kind:
    name, code, size = rng.choice([("FLOAT", "f", 4), ("DOUBLE", "d", 8)])
    digits = rng.choice(["", "", "(9,3)"])
    attribute = rng.choice(["", "", "UNSIGNED"])

    def literal(rng: random.Random) -> str:
        value: float = struct.unpack(f"<{code}", rng.randbytes(size))[0]
        value = rng.choice([value, value, 0.0, 1.5, -1e-3, rng.uniform(-1e6, 1e6)])
        return repr(value if abs(value) < float("inf") else 0.25)

    def equals(streamed: object, read: object) -> bool:
        """Of a number with a fixed count of decimals the last bits need not be those that its text has."""
        assert isinstance(read, float)
        return isinstance(streamed, float) and (round(streamed, 3) == read if digits else streamed == read)

    # SELECT rounds a plain FLOAT to six digits; as a DOUBLE it shows all of it.
    select = "({} + 0e0)" if name == "FLOAT" and not digits else "{}"
    unsigned = bool(attribute)
    return Kind(
        f"{name}{digits} {attribute}", literal, float, size, select=select, unsigned=unsigned, equals=equals
    )


def number(rng: random.Random, dialect: Dialect) -> Kind:
    precision = rng.randint(1, 65)
    scale = rng.randint(0, min(30, precision))
    attribute = rng.choice(["", "", "UNSIGNED"])

    def literal(rng: random.Random) -> str:
        digits = "".join(rng.choices("0123456789", k=precision))
        digits = rng.choice([digits, "0" * precision, "9" * precision, digits[:2].rjust(precision, "0")])
        sign = rng.choice(["", "-"]) if not attribute else ""
        whole = digits[: precision - scale] or "0"
        return f"{sign}{whole}.{digits[precision - scale :]}" if scale else sign + whole

    def equals(streamed: object, read: object) -> bool:
        """With its scale; the server has no negative zero, and prints none."""
        assert isinstance(read, decimal.Decimal)
        return isinstance(streamed, decimal.Decimal) and streamed.as_tuple() == read.as_tuple()

    return Kind(
        f"DECIMAL({precision},{scale}) {attribute}",
        literal,
        lambda raw: decimal.Decimal(text_of(raw)),
        34,
        unsigned=bool(attribute),
        equals=equals,
    )


def bit(rng: random.Random, dialect: Dialect) -> Kind:
    bits = rng.randint(1, 64)
    return Kind(
        f"BIT({bits})",
        lambda rng: f"b'{rng.choice([0, 1, (1 << bits) - 1, rng.randrange(1 << bits)]):b}'",
        lambda raw: int.from_bytes(bytes_of(raw), "big"),
        8,
    )


def year(rng: random.Random, dialect: Dialect) -> Kind:
    return Kind("YEAR", lambda rng: str(rng.choice([0, 1901, 2155, rng.randint(1901, 2155)])), int, 1)


# -------------------------------------------------------------------------------------------- temporal


def _random_day(rng: random.Random) -> str:
    extremes = [
        "0000-00-00",
        "9999-12-31",
        "1000-01-01",
        "2024-02-29",
        "2023-02-31",
        "2023-00-15",
        "2023-07-00",
    ]
    some = f"{rng.randint(1000, 9999)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return rng.choice([*extremes, *[some] * 5])


def _random_clock(rng: random.Random, most_hours: int = 23) -> str:
    hours = rng.choice([0, most_hours, rng.randint(0, most_hours)])
    micros = rng.choice([0, 999_999, 1, 100_000, rng.randrange(1_000_000)])
    return f"{hours:02}:{rng.choice([0, 59, rng.randrange(60)]):02}:{rng.choice([0, 59]):02}.{micros:06}"


def date(rng: random.Random, dialect: Dialect) -> Kind:
    return Kind("DATE", lambda rng: f"'{_random_day(rng)}'", read_date, 3)


def date_and_time(rng: random.Random, dialect: Dialect) -> Kind:
    def literal(rng: random.Random) -> str:
        # Rounding up at the end of time gives a warning and a zero, which is as good a value.
        return f"'{_random_day(rng)} {_random_clock(rng)}'"

    return Kind(f"DATETIME({rng.randint(0, 6)})", literal, read_datetime, 8)


def timestamp(rng: random.Random, dialect: Dialect) -> Kind:
    last = 2**32 - 2 if not dialect.mysql and dialect.version >= (11, 5) else 2**31 - 2

    def literal(rng: random.Random) -> str:
        seconds = rng.choice([1, last, rng.randint(1, last), rng.randint(1, last)])
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(
            seconds=seconds, microseconds=rng.randrange(1_000_000)
        )
        return rng.choice(["'0000-00-00 00:00:00'", *[f"'{moment}'"] * 4])

    return Kind(f"TIMESTAMP({rng.randint(0, 6)})", literal, read_timestamp, 7)


def time(rng: random.Random, dialect: Dialect) -> Kind:
    return Kind(
        f"TIME({rng.randint(0, 6)})",
        lambda rng: f"'{rng.choice(['', '-'])}{_random_clock(rng, rng.choice([23, 838]))}'",
        read_time,
        6,
    )


# ----------------------------------------------------------------------------------- text, labels, bytes


def random_text(rng: random.Random, most: int) -> str:
    length = rng.choice([0, 1, rng.randint(0, min(most, 12)), rng.randint(0, min(most, 40)), min(most, 300)])
    letters = LETTERS if rng.random() < 0.7 else LETTERS[:20]
    return "".join(rng.choices(letters, k=length))


def _charset(rng: random.Random, dialect: Dialect, but: str = "") -> tuple[str, str, int]:
    """SQL, name and width in bytes of a random character set, some of the times with a random collation."""
    name = rng.choice([charset for charset in dialect.collations if charset != but])
    # MySQL 5.6 has no words for a collation of binary.
    with_collation = name != "binary" and rng.random() < 0.5
    collation = f" COLLATE {rng.choice(dialect.collations[name])}" if with_collation else ""
    return f"CHARACTER SET {name}{collation}", name, dialect.widths[name]


def character(rng: random.Random, dialect: Dialect) -> Kind:
    charset, name, width = _charset(rng, dialect)
    most = rng.choice([0, 1, 10, 63, 64, 85, 127, 255])
    return _character_kind(f"CHAR({most}) {charset}", name, most, most * width)


def varchar(rng: random.Random, dialect: Dialect) -> Kind:
    charset, name, width = _charset(rng, dialect)
    most = rng.choice([0, 1, 10, 63, 64, 255, 256, 1000])
    compressed = "COMPRESSED" if not dialect.mysql and most and rng.random() < 0.3 else ""
    return _character_kind(f"VARCHAR({most}) {compressed} {charset}", name, most, most * width + 2)


def text(rng: random.Random, dialect: Dialect) -> Kind:
    charset, name, _ = _charset(rng, dialect, but="binary")
    kind = rng.choice(["TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"])
    compressed = "COMPRESSED" if not dialect.mysql and rng.random() < 0.3 else ""
    most = {"TINYTEXT": 60, "TEXT": 10_000}.get(kind, 70_000)
    return _character_kind(f"{kind} {compressed} {charset}", name, most, 12, long_text=kind != "TINYTEXT")


def _character_kind(sql: str, charset: str, most: int, size: int, *, long_text: bool = False) -> Kind:
    def literal(rng: random.Random) -> str:
        if long_text and rng.random() < 0.02:
            return quoted_text(rng.choice(LETTERS[:9]) * most)
        return quoted_text(random_text(rng, most))

    return Kind(sql, literal, bytes_of if charset == "binary" else text_of, size)


def binary(rng: random.Random, dialect: Dialect) -> Kind:
    name, most = rng.choice(
        [
            ("BINARY", 0),
            ("BINARY", 7),
            ("BINARY", 255),
            ("VARBINARY", 1),
            ("VARBINARY", 255),
            ("VARBINARY", 999),
        ]
    )
    compressed = "COMPRESSED" if not dialect.mysql and name == "VARBINARY" and rng.random() < 0.3 else ""
    return Kind(
        f"{name}({most}) {compressed}", lambda rng: _random_bytes(rng, min(most, 300)), bytes_of, most + 2
    )


def blob(rng: random.Random, dialect: Dialect) -> Kind:
    name = rng.choice(["TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"])
    compressed = "COMPRESSED" if not dialect.mysql and rng.random() < 0.3 else ""

    def literal(rng: random.Random) -> str:
        if name in ("MEDIUMBLOB", "LONGBLOB") and rng.random() < 0.02:
            return hexadecimal(b"\0\xff" * 35_000)
        return _random_bytes(rng, 255)

    return Kind(f"{name} {compressed}", literal, bytes_of, 12)


def _random_bytes(rng: random.Random, most: int) -> str:
    data = rng.randbytes(rng.choice([0, most, rng.randint(0, most), rng.randint(0, min(most, 9))]))
    return hexadecimal(rng.choice([data, data, data[: most - 2] + b"\0\0", data[: most - 1] + b" "])[:most])


def enum(rng: random.Random, dialect: Dialect) -> Kind:
    count = rng.choice([1, 2, 5, 20, 300])
    labels, charset = _labels(rng, dialect, count)
    definition = f"ENUM({','.join(map(_label, labels))}) {charset}"
    # 0 is what the server puts in place of a value that is no label.
    return Kind(definition, lambda rng: str(rng.randint(0, count)), text_of, 2)


def label_set(rng: random.Random, dialect: Dialect) -> Kind:
    count = rng.choice([1, 3, 8, 9, 17, 25, 33, 64])
    labels, charset = _labels(rng, dialect, count)

    def literal(rng: random.Random) -> str:
        return str(rng.choice([0, 1, (1 << count) - 1, rng.randrange(1 << count)]))

    return Kind(f"SET({','.join(map(_label, labels))}) {charset}", literal, text_of, 8)


def _label(text: str) -> str:
    """A list of labels takes no hexadecimal literals."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _labels(rng: random.Random, dialect: Dialect, count: int) -> tuple[list[str], str]:
    """Different in every character set, thanks to their numbers. A comma would part the labels of a SET."""
    charset, _, _ = _charset(rng, dialect, but="binary")
    # information_schema is in utf8mb3: it shows question marks in place of letters beyond U+FFFF. So does SELECT for
    # a label's DEL in character sets that have no DEL; the label has it all the same.
    unshown = "" if dialect.logs_labels else "".join(filter("\uffff".__lt__, LETTERS))
    letters = [letter for letter in LETTERS if letter not in ",\0\x7f" + unshown]
    labels = ["".join(rng.choices(letters, k=rng.randint(0, 3))) for _ in range(count)]
    return [f"{label}#{index}" for index, label in enumerate(labels)], charset


# ----------------------------------------------------------------------------- JSON, geometry, vector...


def document(rng: random.Random, dialect: Dialect) -> Kind:
    if not dialect.mysql:
        return Kind("JSON", lambda rng: quoted_text(json.dumps(_random_json(rng))), text_of, 12)
    return Kind("JSON", lambda rng: _json_literal(rng, 3), read_json, 12, equals=json_equals)


def _random_json(rng: random.Random) -> object:
    return rng.choice([None, 1, "x", [1, 2.5], {"a": [True, {}], "": "ä"}, [[]], -(2**63), 2**64 - 1])


def _json_literal(rng: random.Random, depth: int) -> str:
    """A SQL expression for a document, with the types that only SQL can put into it."""
    scalars = [
        *("NULL", "TRUE", "FALSE", "0", "-1", "32767", "-32769", "2147483648", str(2**64 - 1), str(-(2**63))),
        *(
            "1.5e0",
            "1e300",
            "-0.25e0",
            "CAST(1.50 AS DECIMAL(9,2))",
            "CAST(-98765432109876543210.123 AS DECIMAL(60,20))",
        ),
        *("CAST('2023-02-28' AS DATE)", "CAST('9999-12-31 23:59:59.999999' AS DATETIME(6))"),
        *("CAST('-838:59:59' AS TIME)", "CAST('12:34:56.789' AS TIME(3))", "CAST(X'00ff41' AS BINARY)"),
        quoted_text(random_text(rng, 300)),
        quoted_text("long " * 4000) if rng.random() < 0.02 else "''",
    ]
    shape = rng.random()
    if depth == 0 or shape < 0.3:
        scalar = rng.choice(scalars)
        return f"JSON_EXTRACT(JSON_ARRAY({scalar}), '$[0]')"
    members = [_json_literal(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 5]))]
    if shape < 0.6:
        return f"JSON_ARRAY({', '.join(members)})"
    keys = [quoted_text(f"{random_text(rng, 5)}{index}") for index in range(len(members))]
    pairs = (f"{key}, {member}" for key, member in zip(keys, members, strict=True))
    return f"JSON_OBJECT({', '.join(pairs)})"


def geometry(rng: random.Random, dialect: Dialect) -> Kind:
    def pair(rng: random.Random) -> str:
        return f"{rng.randint(-90, 90)} {rng.choice([rng.randint(-90, 90), rng.uniform(-90, 90)])}"

    def points(rng: random.Random) -> str:
        return ", ".join(pair(rng) for _ in range(rng.randint(2, 5)))

    def ring(rng: random.Random) -> str:
        x, y = rng.randint(-80, 80), rng.randint(-80, 80)
        return f"({x} {y}, {x + 5} {y}, {x + 5} {y + 5}, {x} {y})"

    shapes: dict[str, Literal] = {
        "POINT": lambda rng: f"({pair(rng)})",
        "LINESTRING": lambda rng: f"({points(rng)})",
        "POLYGON": lambda rng: f"({ring(rng)})",
        "MULTIPOINT": lambda rng: f"({points(rng)})",
        "MULTILINESTRING": lambda rng: f"(({points(rng)}), ({points(rng)}))",
        "MULTIPOLYGON": lambda rng: f"(({ring(rng)}))",
        "GEOMETRYCOLLECTION": lambda rng: f"(POINT({pair(rng)}), LINESTRING({points(rng)}))",
    }
    declared = rng.choice(["GEOMETRY", *shapes])
    make = "ST_GeomFromText" if dialect.modern else "GeomFromText"

    def literal(rng: random.Random) -> str:
        shape = rng.choice(list(shapes)) if declared == "GEOMETRY" else declared
        return f"{make}('{shape}{shapes[shape](rng)}', {rng.choice([0, 0, 4326])})"

    return Kind(declared, literal, bytes_of, 12)


def vector(rng: random.Random, dialect: Dialect) -> Kind:
    dimension = rng.choice([1, 3, 100])

    def literal(rng: random.Random) -> str:
        count = rng.randint(1, dimension) if dialect.mysql else dimension
        floats = [rng.choice([0.0, -1.5, 3.4e38, rng.uniform(-9, 9)]) for _ in range(count)]
        return hexadecimal(struct.pack(f"<{count}f", *floats))

    def equals(streamed: object, read: object) -> bool:
        """MariaDB's log does not tell a VECTOR from a VARBINARY."""
        data = streamed.tobytes() if isinstance(streamed, array.array) else streamed
        return isinstance(streamed, array.array) == dialect.mysql and data == read

    # PyMySQL cannot read the type.
    return Kind(
        f"VECTOR({dimension})",
        literal,
        lambda raw: bytes.fromhex(text_of(raw)),
        4 * dimension,
        select="HEX({})",
        equals=equals,
    )


def uuid(rng: random.Random, dialect: Dialect) -> Kind:
    return Kind(
        "UUID",
        lambda rng: f"'{rng.choice([rng.randbytes(16), bytes(16), b'a' * 14 + bytes(2)]).hex()}'",
        lambda raw: bytes.fromhex(text_of(raw).replace("-", "")),
        16,
    )


def inet(rng: random.Random, dialect: Dialect) -> Kind:
    size, name = rng.choice([(4, "INET4"), (16, "INET6")])

    def literal(rng: random.Random) -> str:
        data = rng.choice(
            [rng.randbytes(size), bytes(size), bytes(size - 1) + b"\1", b"\1" + bytes(size - 1)]
        )
        return f"'{ipaddress.ip_address(data)}'"

    return Kind(name, literal, lambda raw: ipaddress.ip_address(text_of(raw)).packed, size)


def kinds_of(dialect: Dialect) -> list[Maker]:
    """The makers of all kinds that a server has; the commoner ones come more than once."""
    kinds: list[Maker] = [
        *[integer, integer, integer, floating, number, number, bit, year],
        *[date, date_and_time, timestamp, time, character, character, varchar, varchar, text],
        *[binary, blob, enum, label_set, geometry],
    ]
    if dialect.has_documents:
        kinds.append(document)
    if dialect.has_vectors:
        kinds.append(vector)
    if not dialect.mysql and dialect.version >= (10, 10):
        kinds += [uuid, inet]
    return kinds
