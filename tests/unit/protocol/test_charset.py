"""Character sets: decoding never raises and loses nothing; differences from Python's codecs are right.

Another test compares every character with the servers.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import charset_tables as tables
from protocol.charset import Charset, charset_by_name, charset_of_collation

NAMES = sorted(tables.COLLATION_IDS)
# Sets whose decoded text, encoded again, gives the same bytes.
BYTE_SETS = sorted({*tables.BYTE_CODECS, *tables.PATCHED_BYTE_CODECS, *tables.UPPER_HALVES, "ascii"})


def charset(name: str) -> Charset:
    found = charset_by_name(name)
    assert found is not None
    return found


def decode(name: str, data: bytes) -> str:
    decoder = charset(name).decode
    assert decoder is not None
    return decoder(data)


def test_every_set_of_the_servers_is_here() -> None:
    assert len(NAMES) == 41
    for name in NAMES:
        found = charset(name)
        assert found.name == name
        assert (found.decode is None) == (name == "binary")


def test_names() -> None:
    assert charset_by_name("utf8") is charset_by_name("UTF8MB3")
    assert charset_by_name("klingon") is None


@pytest.mark.parametrize(
    ("collation", "name"),
    [
        (8, "latin1"),
        (28, "gbk"),
        (33, "utf8mb3"),
        (45, "utf8mb4"),
        (63, "binary"),
        (255, "utf8mb4"),
        (323, "utf8mb4"),
    ],
)
def test_collations_of_both_families(collation: int, name: str) -> None:
    assert charset_of_collation(collation) is charset_by_name(name)
    assert charset_of_collation(collation, mariadb=True) is charset_by_name(name)


@pytest.mark.parametrize(
    ("collation", "name"),
    [
        (608, "utf8mb4"),
        (1032, "latin1"),
        (1057, "utf8mb3"),
        (1270, "utf8mb4"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
    ],
)
def test_collations_of_mariadb(collation: int, name: str) -> None:
    assert charset_of_collation(collation, mariadb=True) is charset_by_name(name)
    assert charset_of_collation(collation) is None


@pytest.mark.parametrize("collation", [-1, 0, 17, 100, 324, 575, 1024, 3328, 2**64])
def test_unknown_collations(collation: int) -> None:
    assert charset_of_collation(collation, mariadb=True) is None


@pytest.mark.parametrize("name", [name for name in NAMES if charset(name).codec is not None])
@given(data=st.data())
def test_the_codec_reads_valid_text_as_decode_does(name: str, data: st.DataObject) -> None:
    found = charset(name)
    assert found.codec is not None
    alphabet = st.characters(max_codepoint=0xFFFF if name == "ucs2" else None, exclude_categories=["Cs"])
    text = data.draw(st.text(alphabet))
    encoded = text.encode(found.codec, "replace")
    assert decode(name, encoded) == encoded.decode(found.codec, found.errors)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "binary"])
@given(data=st.binary())
def test_nothing_raises(name: str, data: bytes) -> None:
    assert len(decode(name, data)) <= 2 * len(data)


@pytest.mark.parametrize("name", BYTE_SETS)
def test_sets_of_one_byte_keep_each_byte_apart(name: str) -> None:
    characters = [decode(name, bytes([byte])) for byte in range(256)]
    assert all(len(character) == 1 for character in characters)
    # Bytes without a character become surrogate escapes, so no two bytes give the same text.
    assert all(ord(c) == 0xDC00 + byte for byte, c in enumerate(characters) if 0xD800 <= ord(c) <= 0xDFFF)
    assert len(set(characters)) == (250 if name == "armscii8" else 256)
    whole = decode(name, bytes(range(256)))
    assert whole == "".join(characters)


def test_armscii8_has_six_characters_twice() -> None:
    assert decode("armscii8", b"\xa4\xa5\xa9\xab\xac\xff") == ")(.,-'"


@pytest.mark.parametrize("name", ["utf8mb4", "utf8mb3", "ascii"])
@given(data=st.binary())
def test_invalid_bytes_survive(name: str, data: bytes) -> None:
    assert decode(name, data).encode(charset(name).codec or "", "surrogateescape") == data


@pytest.mark.parametrize("name", sorted(tables.WIDE_SETS))
@given(data=st.binary())
def test_a_wrong_byte_never_swallows_right_ones(name: str, data: bytes) -> None:
    assert decode(name, data + b"\n\nabc") == decode(name, data) + "\n\nabc"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("euckr", "c9a1 b0a1", "\udcc9\udca1가"),
        ("sjis", "f040 889f", "\udcf0@亜"),
        ("gbk", "a2a0 b0a1", "\udca2\udca0啊"),
        ("ujis", "8fa1a1 b0a1", "\udc8f\udca1\udca1亜"),
        ("gb2312", "f7ff b0a1", "\udcf7\udcff啊"),
        ("gb18030", "e3329a36 b0a1", "\udce32\udc9a6啊"),
    ],
)
def test_a_sequence_without_a_character_does_not_shift_the_next(name: str, data: str, text: str) -> None:
    assert decode(name, bytes.fromhex(data)) == text


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("latin1", "80 81 8d 8f 90 9d e9", "€\x81\x8d\x8f\x90\x9dé"),
        ("swe7", "40 5b 5c 5d 61 c4", "ÉÄÖÅa\udcc4"),
        ("dec8", "a8 d7 a4 ff", "¤Œ\udca4\udcff"),
        ("greek", "a1 a2 c1", "\u02bd\u02bcΑ"),
        ("tis620", "a1 db", "ก\udcdb"),
        ("geostd8", "80 c0 fd 81", "€ა№\udc81"),
        ("big5", "a4a4 f9d6 f9fe", "中碁\udcf9\udcfe"),
        ("big5", "a4a4 f9d6 ff 41 f9", "中碁\udcffA\udcf9"),
        ("sjis", "815f 5c b1", "\\\\ｱ"),
        ("ujis", "a1c0 f5a1 8ff5a1 8fa2b7 8eb1", "\\\ue000\ue3ac~ｱ"),
        ("ujis", "fefe 8ffefe ff", "\ue3ab\ue757\udcff"),
        # F5A1 is a private-use character, but not where its bytes belong to two other characters.
        ("ujis", "f4a6 b0f5 a1a1 f5a1", "熙印\u3000\ue000"),
        ("eucjpms", "a1c1 8fa2b7 ada1 adb7 8ff4fe 8ff4a1", "～～①Ⅲ黑Ⅲ"),
        ("eucjpms", "a1f1 f5a1 adbf", "￠\ue000\udcad\udcbf"),
        ("euckr", "b0a1 8141", "가갂"),
        ("gb18030", "a8bc 8135f437 d6d0", "\u1e3f\ue7c7中"),
        ("gb18030", "ff 8135f437 ff", "\udcff\ue7c7\udcff"),
        ("cp932", "8160 815c", "～―"),
        ("utf8mb4", "f09f9880 ff c3", "😀\udcff\udcc3"),
        ("ucs2", "d83d 0041", "\ud83dA"),
        ("utf16", "d83dde00 d83d 0041", "😀\ud83dA"),
        ("utf16", "0041 42", "A\udc42"),
        ("utf16le", "4100 3dd8 ff", "A\ud83d\udcff"),
        ("utf32", "0001f600 0000d83d", "😀\ud83d"),
        ("utf32", "00000041 00110000 00000042 ff", "A\udc00\udc11\udc00\udc00B\udcff"),
    ],
)
def test_characters(name: str, data: str, text: str) -> None:
    assert decode(name, bytes.fromhex(data)) == text


@pytest.mark.parametrize("name", ["utf16", "utf16le", "ucs2", "utf32"])
@given(data=st.binary().map(lambda data: data[: len(data) // 4 * 4]))
@example(data=b"\xd8\x00\xdc\x00")
@example(data=b"\xdc\x00\xd8\x00")
def test_lone_surrogates_survive(name: str, data: bytes) -> None:
    found = charset(name)
    if name == "utf32":
        data = bytes(
            byte & 0x0F if index % 4 == 1 else 0 if index % 4 == 0 else byte
            for index, byte in enumerate(data)
        )
    assert found.codec is not None
    assert decode(name, data).encode(found.codec, "surrogatepass") == data
