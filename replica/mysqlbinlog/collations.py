"""Names of collations by id, for ``@@character_set_collations`` and user variables. Nothing is compared here.

Read from ``information_schema``: all 1,288 of MariaDB 11.8.6, and all 286 of MySQL 9.7. A name is that of the
character set, then a suffix; MariaDB numbers the collations of Unicode by language.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from protocol.charset import charset_of_collation
from protocol.charset_tables import NOPAD_COLLATION

_FIRST_UCA1400: Final = 2048
_IDS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "bin": (43, 46, 47, 50, 53, 55, 58, *range(61, 76), *range(77, 94), 96, 98),
        "bulgarian_ci": (14,),
        "chinese_ci": (1, 24, 28),
        "croatian_ci": (27, 44, 576, 608, 640, 672, 736),
        "czech_cs": (2, 34),
        "danish_ci": (15,),
        "english_ci": (6,),
        "estonian_cs": (20,),
        "general_ci": (
            *(4, 7, 9, 11, 16, 22, 25, 26, 32, 33, *range(35, 42), 45, 48, 51, 54, 56, 57, 59, 60, 92),
        ),
        "general_cs": (42, 49, 52),
        "general_mysql500_ci": (159, 223),
        "general1400_as_ci": (579, 611),
        "german1_ci": (5,),
        "german2_ci": (31,),
        "hungarian_ci": (21,),
        "japanese_ci": (12, 13, 95, 97),
        "korean_ci": (19,),
        "lithuanian_ci": (29,),
        "myanmar_ci": (577, 609, 641, 673, 737),
        "polish_ci": (99,),
        "spanish_ci": (94,),
        "swedish_ci": (3, 8, 10),
        "thai_520_w2": (578, 610, 642, 674, 738),
        "thai_ci": (18,),
        "turkish_ci": (30,),
        "ukrainian_ci": (23,),
    }
)
_SUFFIXES: Final[Mapping[int, str]] = MappingProxyType(
    {collation: suffix for suffix, collations in _IDS.items() for collation in collations}
)
# UCA 4.0.0 and 5.2.0, from the first id of each of five character sets on.
_UCA_FIRST: Final = (101, 128, 160, 192, 224)
_UCA_LANGUAGES: Final = (
    *("unicode", "icelandic", "latvian", "romanian", "slovenian", "polish", "estonian", "spanish", "swedish"),
    *("turkish", "czech", "danish", "lithuanian", "slovak", "spanish2", "roman", "persian", "esperanto"),
    *("hungarian", "sinhala", "german2", "croatian_mysql561", "unicode_520", "vietnamese"),
)
# UCA 9.0.0 of MySQL, which MariaDB takes for its own UCA 14.0.0: "ai_ci" from 255 on, "as_cs" from 278 on.
_MYSQL_LANGUAGES: Final = (
    *(
        "",
        "de_pb_",
        "is_",
        "lv_",
        "ro_",
        "sl_",
        "pl_",
        "et_",
        "es_",
        "sv_",
        "tr_",
        "cs_",
        "da_",
        "lt_",
        "sk_",
    ),
    *("es_trad_", "la_", None, "eo_", "hu_", "hr_", None, "vi_"),
)
_MYSQL_OTHERS: Final = MappingProxyType({305: "0900_as_ci", 309: "0900_bin"})
# UCA 14.0.0: bits 3 to 7 of the id are the language; strings/ctype-uca1400.h has the others.
_UCA1400_LANGUAGES: Final = (
    *(
        "",
        "_icelandic",
        "_latvian",
        "_romanian",
        "_slovenian",
        "_polish",
        "_estonian",
        "_spanish",
        "_swedish",
    ),
    *("_turkish", "_czech", "_danish", "_lithuanian", "_slovak", "_spanish2", "_roman", "_persian"),
    *("_esperanto", "_hungarian", "_sinhala", "_german2", None, None, "_vietnamese", "_croatian"),
)


# MySQL's collations that MariaDB lacks, or has by another name.
_MYSQL_ONLY: Final = MappingProxyType(
    {
        76: "tolower_ci",
        **dict.fromkeys((122, 149, 181, 213, 245), "croatian_ci"),
        248: "chinese_ci",
        249: "bin",
        250: "unicode_520_ci",
        303: "ja_0900_as_cs",
        304: "ja_0900_as_cs_ks",
        308: "zh_0900_as_cs",
        306: "ru_0900_ai_ci",
        307: "ru_0900_as_cs",
        **{
            310 + 2 * place + end: f"{language}_0900_{('ai_ci', 'as_cs')[end]}"
            for place, language in enumerate(("nb", "nn", "sr_latn", "bs", "bg", "gl", "mn_cyrl"))
            for end in (0, 1)
        },
    }
)


def mysql_collation_name(collation_id: int) -> str | None:
    """The name of a collation of MySQL 9.7; None for an unknown id. Some unused ids get a name, too."""
    charset, suffix = charset_of_collation(collation_id), _MYSQL_ONLY.get(collation_id)
    if charset is None or suffix is None:
        return None if charset is None else collation_name(collation_id)
    return f"{charset.name}_{suffix}"


def collation_name(collation_id: int) -> str | None:
    """The name of a collation of MariaDB 11.8; None for an unknown id. Some unused ids get a name, too."""
    charset = charset_of_collation(collation_id, mariadb=True)
    if charset is None:
        return None
    if charset.name == "binary":
        return charset.name
    is_nopad = NOPAD_COLLATION <= collation_id < _FIRST_UCA1400
    suffix = _suffix(collation_id - NOPAD_COLLATION if is_nopad else collation_id)
    if suffix is None:
        return None
    name = f"{charset.name}_{suffix}"
    if not is_nopad:
        return name
    begin, _, end = name.rpartition("_")
    return f"{begin}_nopad_{end}"


def _suffix(collation_id: int) -> str | None:
    if collation_id >= _FIRST_UCA1400:
        language = _at(_UCA1400_LANGUAGES, collation_id >> 3 & 31)
        pad, accents = ("", "_nopad")[collation_id >> 2 & 1], ("_ai", "_as")[collation_id >> 1 & 1]
        case = ("_ci", "_cs")[collation_id & 1]
        return None if language is None else f"uca1400{language}{pad}{accents}{case}"
    for first in _UCA_FIRST:
        if 0 <= collation_id - first < len(_UCA_LANGUAGES):
            return f"{_UCA_LANGUAGES[collation_id - first]}_ci"
    for first, end in ((255, "ai_ci"), (278, "as_cs")):
        language = _at(_MYSQL_LANGUAGES, collation_id - first)
        if language is not None:
            return f"{language}0900_{end}"
    return _MYSQL_OTHERS.get(collation_id) or _SUFFIXES.get(collation_id)


def _at(names: tuple[str | None, ...], index: int) -> str | None:
    return names[index] if 0 <= index < len(names) else None
