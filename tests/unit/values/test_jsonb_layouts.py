"""Documents that are laid out as earlier ones are read as the plain decoder reads them; layouts are few."""

from __future__ import annotations

import random
import struct
from decimal import localcontext
from typing import Any

import pytest

from protocol.values import inline, jsonb_layouts, jsonb_walk
from protocol.values.inline import SharedConstants
from protocol.values.jsonb_fast import JsonDecoder
from tests.support.json_documents import (
    SMALL_ARRAY,
    STRING,
    check_same,
    check_same_in_row,
    decimal_10_2,
    document,
    packed,
    random_form,
    random_value,
    temporal,
    variable_length,
)

SIGHTS = jsonb_layouts._SIGHTS
HOLES = (b"", b"", b"\0", b"hole")


@pytest.fixture(autouse=True)
def layouts_of_few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small documents have layouts as soon as large ones."""
    monkeypatch.setattr(jsonb_layouts, "_FEW_BYTES", 0)
    monkeypatch.setattr(jsonb_layouts, "_SIGHTS_OF_COMPILED", SIGHTS)


def alike(rng: random.Random, value: Any) -> Any:
    """A value of the same size: other text, numbers and literals."""
    if isinstance(value, dict):
        return {key: alike(rng, member) for key, member in value.items()}
    if isinstance(value, list):
        return [alike(rng, element) for element in value]
    if value is None or isinstance(value, bool):
        return rng.choice((None, True, False))
    if isinstance(value, int):
        return (
            rng.randrange(max(value * 9 // 10, -(2**63)), min(value * 11 // 10, 2**64 - 1) + 1)
            if value > 9
            else value
        )
    if isinstance(value, float):
        return rng.uniform(-1e9, 1e9)
    if isinstance(value, str):
        return "".join(rng.sample(value, len(value)))
    return value


def made(decoder: JsonDecoder) -> int:
    """The number of layouts that the decoder has."""
    return sum(map(len, decoder._layouts.layouts.values()))


def hits(decoder: JsonDecoder) -> int:
    """The number of documents that were read by layouts."""
    return sum(account.hits for account in decoder._layouts._accounts.values())


def practised(values: list[bytes], sights: int = 2) -> JsonDecoder:
    """A decoder that has read these documents until it has made layouts of them."""
    decoder = JsonDecoder(sights)
    for _ in range(SIGHTS + sights + 1):
        for data in values:
            decoder.decode(data)
    return decoder


def test_documents_of_one_layout(seed: int, thorough: bool) -> None:
    rng = random.Random(seed)
    layouts = found = 0
    forms = 150 if thorough else 50
    for _ in range(forms):
        form, hole = random_form(rng), rng.choice(HOLES)
        value = random_value(rng, form)
        decoder = JsonDecoder(sights_before_compiling=3)
        for number in range(60):
            other = alike(rng, value) if rng.random() < 0.8 else random_value(rng, form)
            check_same(decoder, document(value if number % 3 == 0 else other, hole=hole))
        layouts += made(decoder)
        found += hits(decoder)
    print(f"{layouts} layouts, {found} documents by them")
    assert layouts > forms / 3
    assert found > 20 * forms / 3


def test_every_kind_of_value() -> None:
    value = {
        "literal": True, "small": -7, "unsigned": 40_000, "int": 70_000, "uint": 4_000_000_000, "big": -(2**40),
        "huge": 2**64 - 1, "double": 0.5, "text": "Grüße", "empty": "", "long": "x" * 200, "list": [1, "a", None],
        "object": {"a": {"b": []}}, "none": {}, "decimal": decimal_10_2(-12345),
        "at": temporal(12, packed(2026, 11, 25, 10, 0, 0)), "zero": temporal(12, 0), "time": temporal(11, -5),
    }  # fmt: skip
    other = value | {
        "literal": None, "small": 7, "unsigned": 50_000, "int": -70_000, "uint": 3_000_000_000, "big": 2**40,
        "huge": 2**63, "double": -1e300, "text": "Größe", "long": "y" * 200, "list": [2, "b", False],
        "decimal": decimal_10_2(999), "at": temporal(12, packed(1, 2, 3)), "zero": temporal(12, packed(0, 0, 1)),
        "time": temporal(11, 7 << 24),
    }  # fmt: skip
    decoder = practised([document(value), document(other)])
    assert made(decoder) == 1
    before = hits(decoder)
    with localcontext(prec=2, Emax=2, Emin=-2):
        check_same(decoder, document(other))
        check_same(decoder, document(value | {"at": temporal(12, packed(9999, 12, 31, 23, 59, 59, 999_999))}))
    assert hits(decoder) == before + 2


def test_moments_in_any_order_are_kept_apart(seed: int) -> None:
    rng = random.Random(seed)
    moments = [
        *(packed(2026, 11, 25, 10, minute, second) for minute in (0, 3, 4, 59) for second in (0, 59)),
        *(packed(2026, 11, 25, 10, 0, 0, micro) for micro in (1, 65_535, 65_536, 983_040, 999_999)),
        *(packed(2026, 2, 30), packed(1, 1, 1), packed(9999, 12, 31, 23, 59, 59), 0),
    ]
    damaged = [
        *(packed(2026, 11, 25, 10, 0, 60), packed(2026, 11, 25, 10, 60, 0), packed(2026, 11, 25, 24, 0, 0)),
        *(packed(2026, 11, 25, 10, 0, 0, 1_000_000), packed(2026, 11, 25, 10, 0, 0, 2**24 - 1)),
        *(packed(10_000, 1, 1), -1, -packed(2026, 11, 25, 10, 0, 0)),
    ]
    documents = [document({"at": temporal(12, moment)}) for moment in moments]
    decoder = practised(documents)
    assert made(decoder) == 1
    documents += [document({"at": temporal(12, moment)}) for moment in damaged]
    before = hits(decoder)
    for _ in range(20 * len(documents)):
        check_same(decoder, rng.choice(documents))
    assert hits(decoder) > before


def test_an_interrupt_leaves_no_half_of_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, key: object) -> None:
        raise KeyboardInterrupt

    first, other = (
        document({"at": temporal(12, packed(2026, 11, day, 10, 0, second))})
        for day, second in ((1, 1), (2, 2))
    )
    decoder = practised([first, document({"at": temporal(12, packed(2026, 11, 1, 10, 59, 1))})])
    assert made(decoder) == 1
    with monkeypatch.context() as patched:
        patched.setattr(inline.Memo, "__missing__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decoder.decode(other)
    for data in (other, first, other):
        check_same(decoder, data)


def test_every_truncation_and_every_changed_byte(seed: int, thorough: bool) -> None:
    rng = random.Random(seed)
    cases = 0
    while cases < (60_000 if thorough else 10_000):
        data = document(random_value(rng, random_form(rng)), hole=rng.choice(HOLES))
        decoder = practised([data]) if len(data) < 500 else JsonDecoder()
        if not made(decoder):
            continue
        for end in range(len(data)):
            check_same(decoder, data[:end])
        for at in range(len(data)):
            for bits in (1, 2, 0x80, 0xFF, rng.randrange(1, 256)):
                check_same(decoder, data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :])
        cases += 6 * len(data)


def test_documents_in_rows(seed: int, thorough: bool) -> None:
    """A document is read where it stands: at every place, with changed bytes around it, and cut off."""
    rng = random.Random(seed)
    found = 0
    for _ in range(400 if thorough else 60):
        data = document(random_value(rng, random_form(rng)), hole=rng.choice(HOLES))
        decoder = practised([data, data], sights=3) if len(data) < 500 else JsonDecoder()
        if not made(decoder):
            continue
        for before in (0, 1, 7, len(data)):
            row = rng.randbytes(before) + data + rng.randbytes(rng.choice((0, 4)))
            end = before + len(data)
            hits_before = hits(decoder)
            check_same_in_row(decoder, row, before, end)
            found += hits(decoder) - hits_before
            for cut in range(before, end):
                check_same_in_row(decoder, row[:cut], before, end)
                check_same_in_row(decoder, row, before, cut)
            at = rng.randrange(before, end)
            check_same_in_row(decoder, row[:at] + rng.randbytes(1) + row[at + 1 :], before, end)
    assert found > 40


def test_text_that_is_no_utf8_and_unknown_literals() -> None:
    data = document({"a": "four", "b": True})
    decoder = practised([data])
    assert made(decoder) == 1
    check_same(decoder, data.replace(b"four", b"f\xffur"))
    check_same(decoder, data.replace(b"four", b"\xed\xa0\x80r"))
    at = data.index(bytes([4, 1, 0]))
    check_same(decoder, data[: at + 1] + b"\3" + data[at + 2 :])


def test_equal_text_of_values_in_another_order() -> None:
    """A whole number is in its entry or behind all keys: the same expression takes another tuple of values."""
    values = [{"a": "x", "n": number, "b": "yz"} for number in (5, 70_000)]
    decoder = practised([document(value) for value in values])
    assert made(decoder) == 2
    for value in values:
        check_same(decoder, document(value))
        assert decoder.decode(document(value)) == value


def test_contents_that_recur_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"id": "a", "tags": ["x", "y"]}
    other = {"id": "b", "tags": ["x", "z"]}
    decoder = JsonDecoder(20)
    with monkeypatch.context() as patched:
        patched.setattr(jsonb_layouts, "_FEW_SIGHTS", 1000)
        for data in [document(value), document(other)] * 10:
            decoder.decode(data)
    # Now it is known what recurs.
    for data in [document(value), document(other)] * SIGHTS:
        decoder.decode(data)
    assert "_Recurring" in repr(decoder._layouts.layouts[len(document(value))][0].read.__globals__)
    first, second = decoder.decode(document(value)), decoder.decode(document(value))
    assert isinstance(first, dict)
    assert first == second == value
    assert made(decoder) == 1
    first["tags"].append("z")  # type: ignore[union-attr]
    assert decoder.decode(document(value)) == second == value
    for number in range(200):
        check_same(decoder, document({"id": "b", "tags": [chr(97 + number % 26), chr(65 + number // 26)]}))


def test_values_that_never_change_are_part_of_the_layout() -> None:
    values = [{"id": f"{number:03}", "kind": "view", "tags": ["a", 1, None]} for number in range(SIGHTS + 5)]
    decoder = practised([document(value) for value in values])
    [[layout]] = decoder._layouts.layouts.values()
    assert layout.read.__code__.co_varnames == ("data", "at", "end", "p0")
    first, second = (decoder.decode(document(values[0])) for _ in range(2))
    assert first == second == values[0]
    assert first is not second
    first["tags"].append("b")  # type: ignore[call-overload, index, union-attr]
    check_same(decoder, document(values[0]))
    # Once one has changed, it is a value: in place of the layout comes one that reads both.
    for kind in ("sale", "view"):
        for value in values:
            check_same(decoder, document(value | {"kind": kind}))
    before = hits(decoder)
    for kind in ("sale", "view", "none"):
        check_same(decoder, document(values[0] | {"kind": kind}))
    assert hits(decoder) == before + 3
    assert made(decoder) == 1
    check_same(decoder, document(values[0] | {"tags": ["a", 2, None]}))


def test_values_that_change_in_turn_cost_one_layout_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is equal in hundreds of documents and then another is taken for a constant once."""
    plans = count_plans(monkeypatch)
    rng = random.Random(seed)
    decoder = JsonDecoder()
    value = {f"key{index}": "a" for index in range(10)}
    for _ in range(100):
        value[rng.choice(list(value))] = rng.choice("abcdef")
        for number in range(300):
            check_same(decoder, document(value | {"id": f"{number:03}"}))
    assert len(plans) <= 11
    assert made(decoder) == 1
    assert hits(decoder) > 28_000


def test_documents_kept_to_tell_constants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonb_layouts, "_SIGHTS_BYTES", 10_000)
    decoder = JsonDecoder(sights_before_compiling=2)
    for number in range(2000):
        data = document({f"key{number % 7}": "x" * (number * 7919 % 997)})
        check_same(decoder, data)
        kept = [account.sights for account in decoder._layouts._accounts.values()]
        total = sum(len(data) for sights in kept for some in sights.values() for data in some)
        assert total == decoder._layouts._sights_bytes <= 10_000


def test_values_in_an_unusual_place_make_no_layout() -> None:
    strings = [variable_length(3) + b"oak", variable_length(3) + b"ash"]
    for offsets in ((14, 10), (10, 10), (9, 14)):
        head = struct.pack("<HHBHBH", 2, 18, STRING, offsets[0], STRING, offsets[1])
        data = bytes([SMALL_ARRAY]) + head + b"".join(strings)
        decoder = JsonDecoder(sights_before_compiling=2)
        for _ in range(40):
            check_same(decoder, data)
            check_same(decoder, document(["oak", "elm"]))
    # A value that lies upon the entries: the plan itself refuses it.
    head = struct.pack("<HHBHBH", 2, 18, STRING, 7, STRING, 14)
    with pytest.raises(jsonb_walk.UNLIKE):
        jsonb_layouts._Plan(
            bytes([SMALL_ARRAY]) + head + bytes(8), 0, lambda kind, data, at: None, SharedConstants()
        )


@pytest.mark.parametrize(
    "value",
    [
        {"a": b"a blob"},
        {"a": [""] * 129},
        {"a": [[] for _ in range(129)]},
        [[[[[[[[[[[[[[[[[["deep"]]]]]]]]]]]]]]]]]],
        [{str(index): "a"} for index in range(129)],
        {"a": "x" * 9000},
    ],
)
def test_documents_that_have_no_layout(value: Any) -> None:
    data = document(value)
    decoder = practised([data])
    check_same(decoder, data)
    assert made(decoder) == 0


# ------------------------------------------------------------------------------------- what they cost


def count_plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    plans: list[int] = []
    init = jsonb_layouts._Plan.__init__

    def counting(self: Any, data: bytes, *others: Any) -> None:
        plans.append(len(data))
        init(self, data, *others)

    monkeypatch.setattr(jsonb_layouts._Plan, "__init__", counting)
    return plans


def test_layouts_of_free_text_are_given_up(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the allowance is ever made, and afterwards nothing is noted."""
    plans = count_plans(monkeypatch)
    rng = random.Random(seed)
    decoder = JsonDecoder()
    for number in range(4000):
        text = "".join(rng.choices("abc ", k=rng.randrange(1, 40)))
        check_same(decoder, document({"id": number, "text": text, "more": text[: rng.randrange(40)]}))
    assert len(plans) <= jsonb_layouts._ALLOWANCE
    assert len(decoder._layouts.refused) == 1
    assert not made(decoder)
    monkeypatch.setattr(jsonb_layouts.Layouts, "miss", None)
    check_same(decoder, document({"id": 5, "text": "oak", "more": ""}))


def test_more_layouts_come_only_as_they_save_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = count_plans(monkeypatch)
    decoder = JsonDecoder()
    for number in range(40_000):
        size = 1 + number % 100
        decoder.decode(document({"id": number % 100, "text": "x" * size}))
    assert len(plans) <= jsonb_layouts._ALLOWANCE + hits(decoder) // jsonb_layouts._HITS_PER_LAYOUT + 1
    assert made(decoder) <= jsonb_layouts._KEPT


def test_shapes_are_judged_one_by_one(seed: int) -> None:
    """Free text of one shape does not take the layouts of another one away."""
    rng = random.Random(seed)
    decoder = JsonDecoder()
    for number in range(6000):
        text = "".join(rng.choices("abc ", k=rng.randrange(1, 40)))
        check_same(decoder, document({"text": text, "more": text[: rng.randrange(40)]}))
        if number % 3 == 0:
            check_same(decoder, document({"id": number % 100, "code": f"{number:06}"}))
    assert hits(decoder) > 1000
    assert made(decoder) == 1
    assert len(decoder._layouts.refused) == 1


def test_kept_layouts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonb_layouts, "_PATIENCE", 1 << 30)
    monkeypatch.setattr(jsonb_layouts, "_ALLOWANCE", 1 << 30)
    monkeypatch.setattr(jsonb_layouts, "_KEPT", 60)
    decoder = JsonDecoder(sights_before_compiling=2)
    for size in range(1, 150):
        for _ in range(SIGHTS + 3):
            check_same(decoder, document({"text": "x" * size}))
    assert made(decoder) == 60
    for number in range(12):
        for _ in range(SIGHTS + 3):
            check_same(decoder, document(["x" * number, "x" * (12 - number)]))
    assert len(decoder._layouts.layouts[len(document(["", "x" * 12]))]) == jsonb_layouts._KEPT_OF_A_SIZE
    assert made(decoder) <= 60


def test_shapes_that_are_noted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonb_layouts, "_SHAPES_KEPT", 20)
    decoder = JsonDecoder(sights_before_compiling=2)
    for number in range(100):
        for _ in range(SIGHTS + 3):
            check_same(decoder, document({f"key{number}": 1}))
    assert len(decoder._layouts._accounts) == 20
    assert made(decoder) <= 20
    # Layouts go with the readers of their shapes.
    for number in range(1100):
        for _ in range(3):
            decoder.decode(document({f"other{number}": 1}))
    assert len(decoder._layouts._accounts) <= 20


def test_many_shapes_in_rotation_cost_no_walk_over_all_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes beyond those that are noted push each other out: only their own layouts are looked at."""
    monkeypatch.setattr(jsonb_layouts, "_PATIENCE", 1 << 30)
    monkeypatch.setattr(jsonb_layouts, "_ALLOWANCE", 1 << 30)
    decoder = JsonDecoder(sights_before_compiling=4)
    for number in range(5 * 200):
        decoder.decode(document({f"key{number % 200}": "a" * (number % 31)}))
    for number in range(200 * (SIGHTS + 5)):
        decoder.decode(document({"text": "x" * (number % 200)}))
    assert made(decoder) > 100
    puts: list[int] = []
    put = jsonb_layouts.Layouts._put

    def counting(self: Any, size: int, layouts: Any) -> None:
        puts.append(size)
        put(self, size, layouts)

    monkeypatch.setattr(jsonb_layouts.Layouts, "_put", counting)
    for number in range(5 * 200):
        decoder.decode(document({f"other{number % 200}": "a" * (number % 31)}))
    assert len(decoder._layouts._accounts) == jsonb_layouts._SHAPES_KEPT
    assert made(decoder) > 100
    assert len(puts) < 100


def test_small_documents_come_often_before_they_have_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many shapes of a few small documents each are read by the loops alone."""
    monkeypatch.undo()
    plans = count_plans(monkeypatch)
    decoder = JsonDecoder()
    for number in range(50 * 60):
        decoder.decode(document({f"key{number % 50}": number % 100}))
    assert not plans
    decoder = JsonDecoder()
    for _ in range(4 + SIGHTS):
        decoder.decode(document({"text": "x" * 1100}))
    assert plans == [len(document({"text": "x" * 1100}))]
