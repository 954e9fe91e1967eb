"""Inline expressions with which generated row readers make DECIMAL and temporal values without a function call.

The call of a Python function takes 60 ns, a ``datetime`` of seven parts 230. So these expressions look up each byte
of a value in a table, and add the results. Values that the tables lack (zero dates, TIMEs of more than 831 hours) and
damaged bytes go to the plain reader of ``readers``, so the results always equal the plain reader's. This module knows
no columns. A cell table makes the tables at first use and owns them.

The docstrings give nanoseconds per value: CPython 3.11, everything included; in brackets the plain reader's time.
"""

from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime, timedelta
from datetime import date as datetime_date
from decimal import Context, Decimal
from functools import partial
from typing import Final, TypeVar

from ..records import record
from .readers import (
    DIGITS_TO_BYTES,
    MAX_PRECISION,
    MAX_TIME_HOURS,
    DateValue,
    decimal_groups,
    fraction_size,
    read_date,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


@record(frozen=True, slots=True, eq=False)
class Inline:
    """How generated code reads a value of fixed size without a call.

    ``code`` are letters of ``struct``, big-endian or not; these numbers are unpacked together with adjacent values.
    ``expression`` uses the numbers as ``{v}``, ``{v1}``, ``{v2}``... and may assign to these names. ``{c0}``,
    ``{c1}``... are the ``constants``. ``{k0}``, ``{k1}``..., ``kept`` of them, are variables that keep their values
    from row to row, and are None before the first row. ``{f}(data, {p})`` calls the cell's function, the plain
    reader, at the value's first byte. An expression with a ``context`` uses Decimal's operators: the thread's context
    must be that one, or another one with room for ``digits``.
    """

    expression: str
    code: str
    constants: tuple[object, ...] = ()
    is_big_endian: bool = False
    kept: int = 0
    context: Context | None = None
    digits: int = 0


@record(frozen=True, slots=True)
class Shared:
    """A constant that all cells of a cell table share; ``make(*arguments)`` makes it at first use."""

    make: Callable[..., object]
    arguments: tuple[Hashable, ...] = ()


class SharedConstants:
    """Makes each ``Shared`` constant once."""

    def __init__(self) -> None:
        self._made: dict[Shared, object] = {}

    def made(self, constant: object) -> object:
        """The constant, or what a ``Shared`` one makes."""
        if not isinstance(constant, Shared):
            return constant
        if constant not in self._made:
            self._made[constant] = constant.make(*constant.arguments)
        return self._made[constant]


class Memo(dict[Key, Value]):
    """A cache of values by their stored form: makes each value at its first look-up, and empties itself at ``limit``.

    A look-up takes 40 ns, without the call of a Python function.
    """

    __slots__ = ("_limit", "_make")

    def __init__(self, make: Callable[[Key], Value], limit: int) -> None:
        super().__init__()
        self._make = make
        self._limit = limit

    def __missing__(self, key: Key) -> Value:
        value = self._make(key)
        if len(self) >= self._limit:
            self.clear()
        self[key] = value
        return value

    # Generated code tells its constants apart by identity, not by content.
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def _name(number: int) -> str:
    return f"{{v{number}}}" if number else "{v}"


# ------------------------------------------------------------------------------------------------- numbers


def medium_integer(unsigned: bool) -> Inline:
    """MEDIUMINT. 40 [110]."""
    return Inline("{v} + {v1} * 65536", "HB" if unsigned else "Hb")


_BIT_CODES = {
    2: ("H", "{v}"),
    3: ("HB", "{v} << 8 | {v1}"),
    4: ("I", "{v}"),
    5: ("IB", "{v} << 8 | {v1}"),
    6: ("IH", "{v} << 16 | {v1}"),
    7: ("IHB", "{v} << 24 | {v1} << 8 | {v2}"),
    8: ("Q", "{v}"),
}


def bits(size: int) -> Inline | None:
    """BIT of more than one byte. 30 [110]. None for a size that no server has."""
    if size not in _BIT_CODES:
        return None
    code, expression = _BIT_CODES[size]
    return Inline(expression, code, is_big_endian=True)


# ---------------------------------------------------------------------------------------------- DECIMAL

# Decimal's operators take half the time of a context's methods. All results here are exact.
_EXACT: Final = Context(prec=MAX_PRECISION, Emin=-999_999, Emax=999_999, clamp=0, flags=[], traps=[])
_GROUP_CODES = {1: "B", 2: "H", 3: "BH", 4: "I"}


@record(frozen=True, slots=True)
class _Group:
    """A group of ``digits`` of a DECIMAL, unpacked as number ``number`` and, if it has three bytes, also the next."""

    digits: int
    number: int

    @property
    def size(self) -> int:
        return DIGITS_TO_BYTES[self.digits]

    @property
    def limit(self) -> int:
        """The first number with more digits."""
        return int(10**self.digits)

    @property
    def highest(self) -> int:
        """The stored number with all bits set."""
        return (1 << 8 * self.size) - 1

    @property
    def name(self) -> str:
        return _name(self.number)

    @property
    def stored(self) -> str:
        return f"{self.name} * 65536 + {_name(self.number + 1)}" if self.size == 3 else self.name

    @property
    def named(self) -> str:
        """An expression for the stored number that also assigns it to the group's name."""
        return f"({self.name} := {self.stored})" if self.size == 3 else self.name


def _groups(precision: int, scale: int) -> list[_Group]:
    groups: list[_Group] = []
    number = 0
    for digits in decimal_groups(precision, scale):
        groups.append(_Group(digits, number))
        number += len(_GROUP_CODES[groups[-1].size])
    return groups


def _number(groups: list[_Group]) -> str:
    """An expression for the number of all groups together."""
    text = groups[0].name
    for group in groups[1:]:
        text = f"({text} * {group.limit} + {group.name})"
    return text


def _inverted(groups: list[_Group]) -> int:
    """The correction to add to ``_number`` of a negative value, whose bits are all inverted."""
    weight, excess = 1, 0
    for group in reversed(groups[1:]):
        excess += group.highest * weight
        weight *= group.limit
    return weight - excess


def _tails(digits: int) -> tuple[Decimal | None, ...]:
    """The fraction for each byte of a last group of one byte: values >= 0 at the start, negative ones at the end."""
    limit: int = 10**digits
    numbers = [*range(limit), *[None] * (256 - 2 * limit), *range(1 - limit, 1)]
    return tuple(None if number is None else Decimal(number).scaleb(-digits, _EXACT) for number in numbers)


def _result(
    groups: list[_Group], scale: int, in_any_context: bool
) -> tuple[str, tuple[object, ...], list[_Group]]:
    """The expression around a number, its constants, and the groups that form this number."""
    if scale == 0:
        # A class method that also takes integers, in 40 ns instead of the constructor's 140.
        return "{{c0}}({})", (Decimal.from_float,), groups
    if in_any_context:
        return "{{c0}}({}, {{c1}})", (_EXACT.scaleb, Decimal(-scale)), groups
    tail = groups[-1]
    if len(groups) > 1 and tail.digits == scale and tail.size == 1:
        return f"{{{{c0}}}}[{{{tail.name}}}] + {{}}", (Shared(_tails, (scale,)),), groups[:-1]
    return "{{c0}} * {}", (Decimal(1).scaleb(-scale, _EXACT),), groups


def decimal(precision: int, scale: int, in_any_context: bool = False) -> Inline:
    """DECIMAL(precision, scale). (5,0) 140 [430], (10,2) 150 [315], (18,9) 185 [355], (30,10) 310 [985].

    The first group less its sign bit is its value, or one less than that of a negative value. ``in_any_context``:
    without Decimal's operators, for 30 more.
    """
    groups = _groups(precision, scale)
    result, constants, summed = _result(groups, scale, in_any_context)
    lead, *others = groups
    sign = lead.highest // 2 + 1
    positive = [f"0 <= ({lead.name} := {lead.stored} - {sign}) < {lead.limit}"]
    negative = [f"-{lead.limit} <= {lead.name} < 0"]
    positive += (f"{group.named} < {group.limit}" for group in others)
    negative += (f"{group.named} > {group.highest - group.limit}" for group in others)
    choices = [
        (result.format(_number(summed)), positive),
        (result.format(f"({_number(summed)} + {_inverted(summed)})"), negative),
    ]
    if len(summed) > 1 and lead.size < 3:
        # Few values use all digits of their column: the others take 40 ns less.
        choices.insert(0, (result.format(_number(summed[1:])), [f"{lead.name} == {sign}", *positive[1:]]))
    chosen = "".join(f"{value} if {' and '.join(conditions)} else " for value, conditions in choices)
    return Inline(
        chosen + "{f}(data, {p})",
        "".join(_GROUP_CODES[group.size] for group in groups),
        constants,
        is_big_endian=True,
        context=_EXACT if scale and not in_any_context else None,
        digits=precision,
    )


# ------------------------------------------------------------------------------------------------ tables of bytes


class _Doubtful:
    """The table entry for bytes that the plain reader has to read: every sum with it is this object, and is false."""

    def __add__(self, other: object) -> "_Doubtful":
        return self

    __radd__ = __add__

    def __bool__(self) -> bool:
        return False


_DOUBTFUL: Final = _Doubtful()
_HOURS_PER_BYTE = 16

Table = tuple[timedelta | _Doubtful, ...]


def _table(numbers: Iterable[int | None], unit: timedelta) -> Table:
    return tuple(_DOUBTFUL if number is None else number * unit for number in numbers)


def _seconds(packed: int) -> int | None:
    """The seconds of a number of hours, six bits of minutes and six bits of seconds; None for impossible numbers."""
    minute, second = packed >> 6 & 63, packed & 63
    return None if minute > 59 or second > 59 else (packed >> 12) * 3600 + minute * 60 + second


def _clock_table(shift: int, complement: int = 0) -> Table:
    """For a byte of a clock time with ``shift`` bits after it, down to seconds. Negative times are complements."""
    numbers = (complement - byte if complement else byte for byte in range(256))
    unit = timedelta(seconds=-1 if complement else 1)
    return _table((_seconds(number << shift) if number < 256 else None for number in numbers), unit)


def _time_of_day_table() -> Table:
    """For the highest of the five bits of hours, together with the byte after it."""
    seconds = (_seconds(number << 8) if number >> 4 < 24 else None for number in range(512))
    return _table(seconds, timedelta(seconds=1))


def _hours_table() -> Table:
    """For the first byte of a TIME: the sign, and hours without their last four bits."""
    most = (MAX_TIME_HOURS + 1) // _HOURS_PER_BYTE - 1
    numbers = (byte - 128 if byte > 127 else byte - 127 for byte in range(256))
    return _table(
        (number if abs(number) <= most else None for number in numbers), timedelta(hours=_HOURS_PER_BYTE)
    )


def _binary_table(shift: int) -> Table:
    """For a byte of a number of seconds with ``shift`` bits after it."""
    return _table((byte << shift for byte in range(256)), timedelta(seconds=1))


def _fraction_table(size: int, index: int, negative: bool = False) -> Table:
    """For byte ``index`` of a fraction's ``size``. First bytes that could make the sum a second are refused."""
    weight = 1 << 8 * (size - 1 - index)
    limit = 100**size
    first = -256 if negative else 0
    fits = range(-limit + 1, 0) if negative else range(limit - weight + 1)
    numbers = (number * weight for number in range(first, first + 256))
    return _table(
        (number if index or number in fits else None for number in numbers),
        timedelta(microseconds=100 ** (3 - size)),
    )


def _fraction(fsp: int, negative: bool = False) -> list[Shared]:
    size = fraction_size(fsp)
    return [Shared(_fraction_table, (size, index, negative and not index)) for index in range(size)]


def _sum(constant: int, number: int, count: int) -> str:
    """An expression that sums the entries of ``count`` tables for as many numbers, from the right."""
    terms = [f"{{c{constant + index}}}[{_name(number + index)}]" for index in range(count)]
    return " + (".join(terms) + ")" * (count - 1)


# ------------------------------------------------------------------------------------------------ temporals

# Size of the caches of DATEs, DATETIME's days and TIMESTAMP's spans of 18 hours: a century of days, in 7 MB at most.
_DAYS_KEPT = 40_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def date() -> Inline:
    """DATE by its number, as days that follow each other are neighbours in the cache. 70 [280]; 400 if most rows have
    days of their own, spread over thousands of years.
    """
    return Inline("{c0}[{v} | {v1} << 16]", "HB", (Shared(_dates),))


def _dates() -> Memo[int, DateValue]:
    return Memo(_stored_date, _DAYS_KEPT)


def _stored_date(stored: int) -> DateValue:
    try:
        return datetime_date(stored >> 9, stored >> 5 & 15, stored & 31)
    except ValueError:
        return read_date(stored.to_bytes(3, "little"), 0)


def _day(key: int) -> datetime | _Doubtful:
    """The day of three bytes, the first byte lowest: sign, 17 bits year * 13 + month, 5 bits day, a bit that is 0."""
    stored = (key & 0xFF) << 16 | key & 0xFF00 | key >> 16
    return _unbiased_day((stored >> 1) - (0x20000 << 5))


def _unbiased_day(key: int) -> datetime | _Doubtful:
    """The day of a number: year * 13 + month, 5 bits day."""
    year_month = key >> 5
    year = year_month // 13
    try:
        return datetime(year, year_month - 13 * year, key & 31)
    except ValueError:
        return _DOUBTFUL


def _days() -> Memo[int, datetime | _Doubtful]:
    return Memo(_day, _DAYS_KEPT)


def _unbiased_days() -> Memo[int, datetime | _Doubtful]:
    return Memo(_unbiased_day, _DAYS_KEPT)


def datetime2(fsp: int) -> Inline:
    """DATETIME(fsp). (0) 125 [495], (3) 135 [615], (6) 190 [600].

    The moment of the first four bytes, which is exact to four minutes, is kept, because the next row often has the
    same bytes. If rows never do, a value takes 100 more.
    """
    fraction = _fraction(fsp)
    moment = "{c0}[({k0} := {v}) & 0xFEFFFF] + {c1}[{v} >> 24 | {v} >> 8 & 256]"
    return Inline(
        f"({{k1}} if {{v}} == {{k0}} else ({{k1}} := {moment})) + ({_sum(2, 1, 1 + len(fraction))})"
        " or {f}(data, {p})",
        "IB" + "B" * len(fraction),
        (Shared(_days), Shared(_time_of_day_table), Shared(_clock_table, (0,)), *fraction),
        kept=2,
    )


def json_datetime() -> Inline:
    """DATETIME in a JSON document; ``{f}({v}, {v1}, {v2}, {v3})`` is the plain reader. 60 [350].

    The moment of the last four bytes, which is exact to four minutes, is kept, as documents that follow each other
    often have the same. If they never do, a value takes 85 more. Bytes and moment are kept as one, so that no
    exception comes between them (Ctrl-C): they outlive the call.
    """
    found = "({k0} := ({v3}, {c0}[{v3} >> 9] + {c1}[{v3} & 511]))[1]"
    moment = f"({{k0}}[1] if {{k0}} is not None and {{k0}}[0] == {{v3}} else {found})"
    micro = "({v} | {v1} << 16)"
    return Inline(
        f"({moment} + {{c2}}[{{v2}}] if not {{v}} and not {{v1}} else"
        f" {moment} + ({{c2}}[{{v2}}] + {{c3}} * {micro}) if {micro} < 1000000 else None)"
        " or {f}({v}, {v1}, {v2}, {v3})",
        "HBBI",
        (
            *(Shared(_unbiased_days), Shared(_time_of_day_table), Shared(_clock_table, (0,))),
            timedelta(microseconds=1),
        ),
        kept=1,
    )


def _span(is_big_endian: bool, key: int) -> datetime | _Doubtful:
    """The start of a span of 65,536 seconds. The first span is left out, because it has the zero TIMESTAMP in it."""
    number = (key & 255) << 8 | key >> 8 if is_big_endian else key
    return _EPOCH + timedelta(seconds=number << 16) if number else _DOUBTFUL


def _spans(is_big_endian: bool) -> Memo[int, datetime | _Doubtful]:
    return Memo(partial(_span, is_big_endian), _DAYS_KEPT)


def _seconds_of_span() -> tuple[Shared, Shared]:
    return Shared(_binary_table, (8,)), Shared(_binary_table, (0,))


def timestamp2(fsp: int) -> Inline:
    """TIMESTAMP(fsp). (0) 105 [365], (6) 225 [630]. The span of 18 hours is kept for the next row."""
    fraction = _fraction(fsp)
    return Inline(
        "({k1} if {v} == {k0} else ({k1} := {c0}[({k0} := {v})]))"
        f" + ({_sum(1, 1, 2 + len(fraction))}) or {{f}}(data, {{p}})",
        "HBB" + "B" * len(fraction),
        (Shared(_spans, (True,)), *_seconds_of_span(), *fraction),
        kept=2,
    )


def timestamp() -> Inline:
    """TIMESTAMP before MySQL 5.6 (type 7): the same bytes in the reverse order."""
    return Inline(
        "({k1} if {v2} == {k0} else ({k1} := {c0}[({k0} := {v2})])) + ({c1}[{v1}] + {c2}[{v}])"
        " or {f}(data, {p})",
        "BBH",
        (Shared(_spans, (False,)), *_seconds_of_span()),
        kept=2,
    )


def time2(fsp: int) -> Inline:
    """TIME(fsp). (0) 105 [720], (6) 230 [845].

    A negative value is stored as the complement of all bytes: the complement of each byte, plus 1 in the last byte
    that is not zero. A negative value whose seconds are zero, too, goes to the plain reader.
    """
    fraction = _fraction(fsp)
    count = 2 + len(fraction)
    positive = [Shared(_clock_table, (8,)), Shared(_clock_table, (0,)), *fraction]
    negative = [Shared(_clock_table, (8, 255)), Shared(_clock_table, (0, 256))]
    below_zero = _sum(2 + count, 1, 2)
    if fraction:
        negative += [Shared(_clock_table, (0, 255)), *_fraction(fsp, negative=True)]
        has_fraction = " or ".join(_name(3 + index) for index in range(len(fraction)))
        with_fraction = f"{{c{2 + count}}}[{{v1}}] + ({_sum(4 + count, 2, 1 + len(fraction))})"
        below_zero = f"{with_fraction} if {has_fraction} else {below_zero}"
    # Not "or" as in the other types, because a TIME of zero is false, too.
    return Inline(
        f"{{v}} if ({{v}} := {{c1}}[{{v}}] + ({_sum(2, 1, count)} if {{v}} > 127 else"
        f" {below_zero})) is not {{c0}} else {{f}}(data, {{p}})",
        "BBB" + "B" * len(fraction),
        (_DOUBTFUL, Shared(_hours_table), *positive, *negative),
    )
