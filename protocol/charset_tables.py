"""Data of ``charset``: the collation ids of each character set, and its differences from Python's codecs.

Read from ``information_schema`` and, character by character, from ``CONVERT(... USING utf8mb4)`` of MySQL 9.7
and MariaDB 11.8. The two agree on every id and every character that both have. Tables only, no decoding.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

FIRST_MARIADB_COLLATION = 576
# MariaDB: the NO PAD twin of a collation has this bit (ids 1025 to 1270).
NOPAD_COLLATION = 1024

COLLATION_IDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "armscii8": (32, 64),
        "ascii": (11, 65),
        "big5": (1, 84),
        "binary": (63,),
        "cp1250": (26, 34, 44, 66, 99),
        "cp1251": (14, 23, 50, 51, 52),
        "cp1256": (57, 67),
        "cp1257": (29, 58, 59),
        "cp850": (4, 80),
        "cp852": (40, 81),
        "cp866": (36, 68),
        "cp932": (95, 96),
        "dec8": (3, 69),
        "eucjpms": (97, 98),
        "euckr": (19, 85),
        "gb18030": (248, 249, 250),
        "gb2312": (24, 86),
        "gbk": (28, 87),
        "geostd8": (92, 93),
        "greek": (25, 70),
        "hebrew": (16, 71),
        "hp8": (6, 72),
        "keybcs2": (37, 73),
        "koi8r": (7, 74),
        "koi8u": (22, 75),
        "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
        "latin2": (2, 9, 21, 27, 77),
        "latin5": (30, 78),
        "latin7": (20, 41, 42, 79),
        "macce": (38, 43),
        "macroman": (39, 53),
        "sjis": (13, 88),
        "swe7": (10, 82),
        "tis620": (18, 89),
        "ucs2": (35, 90),
        "ujis": (12, 91),
        "utf16": (54, 55),
        "utf16le": (56, 62),
        "utf32": (60, 61),
        "utf8mb3": (33, 76, 83),
        "utf8mb4": (45, 46),
    }
)

# First and last id of the Unicode collations. Unused ids of a range are reserved for the same character set. From 576
# on: MariaDB's own collations; from 2048 on: its UCA 14.0.0 collations, 256 ids for each character set.
COLLATION_RANGES: tuple[tuple[int, int, str], ...] = (
    (101, 127, "utf16"),
    (128, 159, "ucs2"),
    (160, 191, "utf32"),
    (192, 223, "utf8mb3"),
    (224, 247, "utf8mb4"),
    (255, 323, "utf8mb4"),
    (576, 607, "utf8mb3"),
    (608, 639, "utf8mb4"),
    (640, 671, "ucs2"),
    (672, 703, "utf16"),
    (736, 767, "utf32"),
    (2048, 2303, "utf8mb3"),
    (2304, 2559, "utf8mb4"),
    (2560, 2815, "ucs2"),
    (2816, 3071, "utf16"),
    (3072, 3327, "utf32"),
)

# Single-byte character sets that a Python codec decodes as the servers do.
BYTE_CODECS: Mapping[str, str] = MappingProxyType(
    {
        "cp1250": "cp1250",
        "cp1251": "cp1251",
        "cp1256": "cp1256",
        "cp1257": "cp1257",
        "cp850": "cp850",
        "cp852": "cp852",
        "hp8": "hp_roman8",
        "koi8r": "koi8_r",
        "latin2": "iso8859_2",
        "latin5": "iso8859_9",
        "latin7": "iso8859_13",
        "macce": "mac_latin2",
        "macroman": "mac_roman",
        "tis620": "tis_620",
    }
)

# Single-byte sets that differ from a Python codec: the codec, and the servers' character for each differing byte.
# "\ufffe" means no character.
PATCHED_BYTE_CODECS: Mapping[str, tuple[str, Mapping[int, str]]] = MappingProxyType(
    {
        "cp866": ("cp866", {0xFC: "\u207f", 0xFD: "\u00b2"}),
        "dec8": (
            "latin_1",
            {
                **dict.fromkeys(b"\xa4\xa6\xac\xad\xae\xaf\xb4\xb8\xbe\xd0\xde\xf0\xfe\xff", "\ufffe"),
                0xA8: "\u00a4",
                0xD7: "\u0152",
                0xDD: "\u0178",
                0xF7: "\u0153",
                0xFD: "\u00ff",
            },
        ),
        "greek": ("iso8859_7", {0xA1: "\u02bd", 0xA2: "\u02bc"}),
        "hebrew": ("iso8859_8", {0xAF: "\u203e"}),
        "koi8u": ("koi8_u", {0x95: "\u2022"}),
        # The five bytes that cp1252 leaves undefined are control characters in MySQL's latin1.
        "latin1": ("cp1252", {byte: chr(byte) for byte in b"\x81\x8d\x8f\x90\x9d"}),
        "swe7": ("ascii", dict(zip(b"@[\\]^`{|}~", "ÉÄÖÅÜéäöåü", strict=True))),
    }
)

_C1 = "".join(map(chr, range(0x80, 0xA0)))

# Single-byte sets without a Python codec: the characters of bytes 0x80 to 0xFF; lower bytes are ASCII.
UPPER_HALVES: Mapping[str, str] = MappingProxyType(
    {
        "armscii8": _C1 + "\xa0❁§։)(»«—.՝,-՟…՜՛՞"
        "ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
        "geostd8": "€\ufffe‚\ufffe„…†‡\ufffe‰\ufffe‹\ufffe\ufffe\ufffe\ufffe"
        "\ufffe‘’“”•–—\ufffe\ufffe\ufffe›\ufffe\ufffe\ufffe\ufffe"
        + "".join(map(chr, range(0xA0, 0xC0)))
        + "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ"
        + "\ufffe" * 23
        + "№\ufffe\ufffe",
        "keybcs2": "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»"
        "░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0",
    }
)

# Characters that the servers know and Python's codecs refuse: the first sequence of a run -> the run's characters.
_BIG5_EXTENSIONS: Mapping[bytes, str] = MappingProxyType({b"\xf9\xd6": "碁銹裏墻恒粧嫺"})
_EUCJPMS_EXTENSIONS: Mapping[bytes, str] = MappingProxyType(
    {
        # NEC's row 13
        b"\xad\xa1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ",
        b"\xad\xc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
        b"\xad\xdf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪",
        # IBM's
        b"\x8f\xf3\xf3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
        b"\x8f\xf4\xa1": "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11德悅愠敎昻晥\ufa12"
        "\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e"
        "荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29霻靍靑\ufa2a"
        "\ufa2b\ufa2c馞髙魲\ufa2d黑",
    }
)
# Rows 85 to 94 of JIS X 0208 and of JIS X 0212 are for private use: 94 characters a row.
_EUC_PRIVATE_ROWS: Mapping[bytes, str] = MappingProxyType(
    {
        plane + bytes((0xF5 + row, 0xA1)): "".join(map(chr, range(start + 94 * row, start + 94 * row + 94)))
        for plane, start in ((b"", 0xE000), (b"\x8f", 0xE3AC))
        for row in range(10)
    }
)


def _characters(sequences: bytes) -> bytes:
    """A pattern that matches a run of ASCII, a multi-byte character, or a byte that starts no character."""
    return rb"(?s:[\x00-\x7f]+|" + sequences + rb"|.)"


# Well-formed sequences, with and without a character (``strings/ctype-*.cc``: ismbchar_*).
_BIG5 = _characters(rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]")
_EUC = _characters(rb"\x8f[\xa1-\xfe][\xa1-\xfe]|\x8e[\xa1-\xdf]|[\xa1-\xfe][\xa1-\xfe]")
_EUCKR = _characters(rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]")
_GB18030 = _characters(
    rb"[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]|[\x81-\xfe][\x40-\x7e\x80-\xfe]",
)
_GB2312 = _characters(rb"[\xa1-\xf7][\xa1-\xfe]")
_GBK = _characters(rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]")
_SJIS = _characters(rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]")


class WideSet(NamedTuple):
    """A multi-byte character set: a Python codec and its differences from the servers.

    ``sequences`` is a pattern that finds the characters. ``extensions``: characters that the codec lacks, as above.
    ``synonym``: a sequence, and the one that the servers read it as. ``characters``: the codec's character -> the
    servers' character; only one sequence decodes to each, so that the decoded text can be corrected.
    """

    codec: str
    max_bytes: int
    sequences: bytes
    extensions: Mapping[bytes, str] = MappingProxyType({})
    synonym: tuple[bytes, bytes] | None = None
    characters: Mapping[int, str] = MappingProxyType({})


WIDE_SETS: Mapping[str, WideSet] = MappingProxyType(
    {
        # For seven sequences, such as A15A, the servers give U+FFFD. Python knows the characters.
        "big5": WideSet("big5", 2, _BIG5, _BIG5_EXTENSIONS),
        "cp932": WideSet("cp932", 2, _SJIS),
        "eucjpms": WideSet(
            "euc_jp",
            3,
            _EUC,
            MappingProxyType({**_EUCJPMS_EXTENSIONS, **_EUC_PRIVATE_ROWS}),
            (b"\x8f\xa2\xb7", b"\xa1\xc1"),
            MappingProxyType(
                {
                    0x301C: "\uff5e",
                    0x2016: "\u2225",
                    0x2212: "\uff0d",
                    0x00A2: "\uffe0",
                    0x00A3: "\uffe1",
                    0x00AC: "\uffe2",
                    0x00A6: "\uffe4",
                }
            ),
        ),
        "euckr": WideSet("cp949", 2, _EUCKR),
        # The servers follow the standard of 2005 here, Python the one of 2000.
        "gb18030": WideSet(
            "gb18030", 4, _GB18030, characters=MappingProxyType({0xE7C7: "\u1e3f", 0x1E3F: "\ue7c7"})
        ),
        "gb2312": WideSet("gb2312", 2, _GB2312),
        "gbk": WideSet("gbk", 2, _GBK),
        "sjis": WideSet("shift_jis", 2, _SJIS, characters=MappingProxyType({0xFF3C: "\\"})),
        "ujis": WideSet("euc_jp", 3, _EUC, _EUC_PRIVATE_ROWS, characters=MappingProxyType({0xFF3C: "\\"})),
    }
)
