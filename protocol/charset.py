"""Decoders of the servers' character sets, found by collation id or by name.

Every character set of MySQL 9.7 and MariaDB 11.8 is here. ``Charset.decode`` gives the same characters as the
servers (compared with them byte by byte) and never raises:

- Where the servers have no character (they give '?'), the value has the character of Python's codec. If the codec
  has none either, and for invalid bytes, each byte becomes ASCII or a surrogate escape (U+DC80 to U+DCFF).
- UCS-2, UTF-16 and UTF-32 keep lone surrogates as they are ("surrogatepass"). Bytes of an incomplete or impossible
  unit, which no server stores, become U+DC00 + byte.

The servers read some pairs of sequences as one character (ujis A1C0 and sjis 815F are backslashes): the value is
what SELECT gives. This module knows no columns.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from . import charset_tables as tables
from .charset_tables import WideSet
from .records import record

Decode = Callable[[bytes], str]


@record(slots=True, frozen=True)
class Charset:
    """A character set. ``decode`` is None for ``binary``: its values stay bytes.

    ``codec`` is a Python codec that, with ``errors``, reads all valid input as ``decode`` does; None if there
    is none. ``max_bytes`` is the most that one character takes.
    """

    name: str
    codec: str | None
    errors: str
    decode: Decode | None
    max_bytes: int


@cache
def charset_by_name(name: str) -> Charset | None:
    """The character set of this name, in any letter case; ``utf8`` is utf8mb3. None if no server has it."""
    name = name.lower()
    return _make("utf8mb3" if name == "utf8" else name)


def charset_of_collation(collation_id: int, mariadb: bool = False) -> Charset | None:
    """The character set of a collation. Ids from 576 on exist in MariaDB only; below 576 both families agree."""
    if collation_id >= tables.FIRST_MARIADB_COLLATION and not mariadb:
        return None
    if tables.NOPAD_COLLATION <= collation_id < 2 * tables.NOPAD_COLLATION:
        collation_id -= tables.NOPAD_COLLATION
    name = _COLLATION_CHARSETS.get(collation_id)
    return None if name is None else charset_by_name(name)


_COLLATION_CHARSETS: Mapping[int, str] = MappingProxyType(
    {collation: name for name, collations in tables.COLLATION_IDS.items() for collation in collations}
    | {
        collation: name
        for first, last, name in tables.COLLATION_RANGES
        for collation in range(first, last + 1)
    }
)


# ------------------------------------------------------------------------------- one byte a character


def _byte_table(codec: str, patch: Mapping[int, str] = MappingProxyType({})) -> str:
    """The characters of all 256 bytes; U+FFFE marks a byte without one, as ``codecs.charmap_decode`` expects."""
    text = bytes(range(256)).decode(codec, "surrogateescape")
    return "".join(
        patch.get(byte, "\ufffe" if 0xDC80 <= ord(character) <= 0xDCFF else character)
        for byte, character in enumerate(text)
    )


def _byte_decoder(table: str) -> Decode:
    # 80 ns for ten characters. bytes.decode() by codec name takes 350 ns, and to test isascii() first gains
    # nothing (67 ns for ASCII, 117 ns for the rest).
    charmap_decode = codecs.charmap_decode

    def decode(data: bytes) -> str:
        return charmap_decode(data, "surrogateescape", table)[0]

    return decode


def _decode_ascii(data: bytes) -> str:
    return data.decode("ascii", "surrogateescape")


def _decode_utf8(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# --------------------------------------------------------------------------- several bytes a character


def _wide_decoder(wide: WideSet) -> Decode:
    """Tests for ASCII first: 70 ns instead of 200 for ten characters."""
    decode_rest = _with_replacements(wide.characters, _with_synonym(wide.synonym, _sequence_decoder(wide)))

    def decode(data: bytes) -> str:
        return data.decode("ascii") if data.isascii() else decode_rest(data)

    return decode


def _sequence_decoder(wide: WideSet) -> Decode:
    """Decodes the whole value at once or, if the codec refuses that, sequence by sequence.

    Python's own error handlers would resume in the middle of a sequence without a character, and decode wrong
    characters from there on.
    """
    decode_codec = codecs.getdecoder(wide.codec)
    find_sequences = re.compile(wide.sequences).findall
    extensions = {
        first[:-1] + bytes((first[-1] + offset,)): character
        for first, row in wide.extensions.items()
        for offset, character in enumerate(row)
    }

    def decode_sequence(sequence: bytes) -> str:
        try:
            return decode_codec(sequence)[0]
        except UnicodeDecodeError:
            return extensions.get(sequence) or sequence.decode("ascii", "surrogateescape")

    def decode(data: bytes) -> str:
        try:
            return decode_codec(data)[0]
        except UnicodeDecodeError:
            return "".join(map(decode_sequence, find_sequences(data)))

    return decode


def _with_synonym(synonym: tuple[bytes, bytes] | None, decode: Decode) -> Decode:
    """Replaces ``sequence`` by ``other`` first; correct only for sequences that cannot begin inside another one."""
    if synonym is None:
        return decode
    sequence, other = synonym
    return lambda data: decode(data.replace(sequence, other))


def _with_replacements(characters: Mapping[int, str], decode: Decode) -> Decode:
    if not characters:
        return decode
    differing = [chr(character) for character in characters]
    replacements = dict(characters)

    def decode_and_replace(data: bytes) -> str:
        text = decode(data)
        # 20 ns a test; translate() would copy the whole text.
        for character in differing:
            if character in text:
                return text.translate(replacements)
        return text

    return decode_and_replace


# ---------------------------------------------------------------------------- UCS-2, UTF-16, UTF-32


def _unit_decoder(decode_units: Callable[[bytes, str, bool], tuple[str, int]], unit: int) -> Decode:
    def decode(data: bytes) -> str:
        try:
            return decode_units(data, "surrogatepass", True)[0]
        except UnicodeDecodeError:
            return salvage(data)

    def salvage(data: bytes) -> str:
        """Decodes unit by unit; impossible (UTF-32) and incomplete units become one character a byte."""
        whole = len(data) - len(data) % unit
        try:
            text = decode_units(data[:whole], "surrogatepass", True)[0]
        except UnicodeDecodeError:
            text = "".join([salvage_unit(data[at : at + unit]) for at in range(0, whole, unit)])
        return text + _stray(data[whole:])

    def salvage_unit(data: bytes) -> str:
        try:
            return decode_units(data, "surrogatepass", True)[0]
        except UnicodeDecodeError:
            return _stray(data)

    return decode


def _stray(data: bytes) -> str:
    return "".join([chr(0xDC00 | byte) for byte in data])


def _make(name: str) -> Charset | None:
    if name in tables.BYTE_CODECS:
        codec = tables.BYTE_CODECS[name]
        return Charset(name, codec, "surrogateescape", _byte_decoder(_byte_table(codec)), 1)
    if name in tables.PATCHED_BYTE_CODECS:
        decode = _byte_decoder(_byte_table(*tables.PATCHED_BYTE_CODECS[name]))
        return Charset(name, None, "surrogateescape", decode, 1)
    if name in tables.UPPER_HALVES:
        decode = _byte_decoder("".join(map(chr, range(0x80))) + tables.UPPER_HALVES[name])
        return Charset(name, None, "surrogateescape", decode, 1)
    if name in tables.WIDE_SETS:
        wide = tables.WIDE_SETS[name]
        exact = not (wide.characters or wide.synonym or wide.extensions)
        codec_name = wide.codec if exact else None
        return Charset(name, codec_name, "surrogateescape", _wide_decoder(wide), wide.max_bytes)
    return _PLAIN.get(name)


_PLAIN: Mapping[str, Charset] = MappingProxyType(
    {
        charset.name: charset
        for charset in (
            Charset("ascii", "ascii", "surrogateescape", _decode_ascii, 1),
            Charset("binary", None, "surrogateescape", None, 1),
            Charset("ucs2", "utf-16-be", "surrogatepass", _unit_decoder(codecs.utf_16_be_decode, 2), 2),
            Charset("utf16", "utf-16-be", "surrogatepass", _unit_decoder(codecs.utf_16_be_decode, 2), 4),
            Charset("utf16le", "utf-16-le", "surrogatepass", _unit_decoder(codecs.utf_16_le_decode, 2), 4),
            Charset("utf32", "utf-32-be", "surrogatepass", _unit_decoder(codecs.utf_32_be_decode, 4), 4),
            Charset("utf8mb3", "utf-8", "surrogateescape", _decode_utf8, 3),
            Charset("utf8mb4", "utf-8", "surrogateescape", _decode_utf8, 4),
        )
    }
)
