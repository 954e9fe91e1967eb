"""Documents that are read together say what each says alone: SELECT's texts, the same errors and losses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.values.jsonb import decode_json
from protocol.values.jsonb_text import render_json
from replica.arrow import Losses
from replica.arrow.buffer import RowBuffer
from replica.arrow.document_batches import DocumentBatches
from replica.arrow.document_layouts import DocumentLayouts
from replica.arrow.strings import valid_text
from tests.support.arrow_tables import column, converted
from tests.support.json_documents import decimal_10_2, document, packed, random_form, random_value, temporal

OF = column("c", ColumnType.JSON, 4)
MANY = 200


def alone(data: bytes) -> str:
    return render_json(decode_json(data))


def stored(data: bytes | None) -> bytes | None:
    return None if data is None else len(data).to_bytes(4, "little") + data


@pytest.fixture(autouse=True, params=["layouts", "no layouts"])
def layouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test with layouts, and without them, so that all documents come to the reader of shapes."""
    if request.param == "no layouts":
        monkeypatch.setattr(DocumentLayouts, "groups", lambda *arguments: [])


def check(documents: Sequence[bytes | None], note: str = "") -> None:
    """The column of these documents, against each of them by the plain decoder and renderer."""
    try:
        texts = [None if data is None else alone(data) for data in documents]
    except DecodeError:
        with pytest.raises(DecodeError):
            converted(OF, [*map(stored, documents)])
        return
    array, losses = converted(OF, [*map(stored, documents)])
    array.validate(full=True)
    expected = [None if text is None else valid_text(text) for text in texts]
    assert array.to_pylist() == expected, note
    assert losses == Losses(texts=sum(text != valid for text, valid in zip(texts, expected, strict=True))), (
        note
    )


def together(documents: Sequence[bytes]) -> int:
    """The number of documents that are read together, by their shapes."""
    buffer, starts, ends = _laid_out(documents)
    batches = DocumentBatches()
    batches._layouts._is_over = True
    return sum(len(texts.rows) for texts in batches.texts(buffer, starts, ends))


def _laid_out(documents: Sequence[bytes]) -> tuple[RowBuffer, Any, Any]:
    ends = np.cumsum([len(data) for data in documents])
    return RowBuffer(documents), ends - np.array([len(data) for data in documents]), ends


NUMBERS = [pytest.param(number, marks=[] if number < 2 else [pytest.mark.thorough]) for number in range(30)]


@pytest.mark.parametrize("number", NUMBERS)
def test_documents_of_one_form_are_the_texts_of_each_alone(number: int, seed: int) -> None:
    rng = random.Random(f"{seed} {number}")
    form = random_form(rng)
    documents: list[bytes | None] = []
    for _ in range(MANY):
        hole = b"hole" if rng.random() < 0.02 else b""
        documents.append(document(random_value(rng, form), hole=hole) if rng.random() > 0.05 else None)
    check(documents, f"seed {seed}, number {number}")


@pytest.mark.parametrize("number", NUMBERS)
def test_damaged_documents_among_others(number: int, seed: int) -> None:
    """Bytes changed anywhere: whatever a document says then, or that it says nothing, alone and among others."""
    rng = random.Random(f"damaged {seed} {number}")
    form = random_form(rng)
    good = [document(random_value(rng, form)) for _ in range(MANY)]
    for _ in range(10):
        documents = [*good]
        for _ in range(rng.choice((1, 1, 20))):
            index = rng.randrange(MANY)
            data = bytearray(documents[index])
            data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                decode_json(bytes(data))
            except DecodeError:
                if rng.random() < 0.7:
                    continue
            documents[index] = bytes(data)
        check(documents, f"seed {seed}, number {number}")


VALUES: dict[str, Callable[[int], Any]] = {
    "integers": lambda n: {"a": n, "b": -n, "c": n << 16, "d": n << 32, "e": (1 << 63) + n, "f": 40_000 + n},
    "growing": lambda n: [n, n * 1000, n * 10**12, -n * 10**9],
    "literals": lambda n: {"yes": True, "no": False, "none": None, "either": n % 2 == 0},
    "doubles": lambda n: {
        "small": n / 7,
        "tiny": n * 1e-9,
        "large": n * 1e17,
        "whole": float(n),
        "zero": -0.0,
    },
    "strings": lambda n: {"empty": "", "short": "é" * n, "long": "x" * (n * 80), "equal": "oak"},
    "escapes": lambda n: {'key "\\\n': 'say "oak"\\' if n % 3 else "oak", "b\x01": "\n\t\x00\x1f\x7f"},
    "decimals": lambda n: [decimal_10_2(n * 101), decimal_10_2(-n), decimal_10_2(0)],
    "dates": lambda n: {
        "at": temporal(12, packed(2024, 1 + n % 12, 1 + n % 28, n % 24, n % 60, 59, n)),
        "day": temporal(10, packed(1000 + n, 2, 28)),
        "stamp": temporal(7, packed(9999, 12, 31, 23, 59, 59, 999_999)),
    },
    "containers": lambda n: {"a": {"b": {"c": [n, {"d": [[], {}, [[n]]]}]}}, "z": [{"n": n}, {"n": n + 1}]},
    "several types": lambda n: {"a": (n, str(n), None, [n], {"n": n}, {"m": n}, n / 3, True)[n % 8]},
    "several lengths": lambda n: {"items": [{"sku": str(n), "n": n}] * (n % 4)},
    "several shapes": lambda n: [{"a": n}, {"b": n, "c": "x"}, [n], []][n % 4],
}


@pytest.mark.parametrize("name", VALUES)
def test_documents_that_are_alike_are_read_together(name: str) -> None:
    documents = [document(VALUES[name](number)) for number in range(MANY)]
    check(documents)
    assert together(documents) == MANY
    # Some among them say something else altogether.
    others = [document(value) for value in ("oak", None, 7, 1.5, {"else": "oak"}, [b"blob"], {})]
    check([*documents, *others, None, b""])
    assert together([*documents, *others]) == MANY


def test_documents_that_are_not_alike_are_left_to_be_read_alone() -> None:
    documents = [document({f"id{number}": number}) for number in range(MANY)]
    assert together(documents) == 0
    check(documents)
    # A wide array, a deep document, a large container, bytes between values that an update in place has left.
    for value, large, hole in (([7] * 100, False, b""), ([[[[[[[[[1]]]]]]]]], False, b""), ([1], True, b"")):
        documents = [document(value, large, hole)] * MANY
        assert together(documents) == 0
        check(documents)


def test_bytes_that_are_not_used_do_not_matter() -> None:
    documents = [document({"a": "oak", "b": [number, "elm"]}, hole=b"\xff\0") for number in range(MANY)]
    check(documents)


def test_strings_that_are_no_utf8_are_counted() -> None:
    documents = [
        document({"a": "oak" if number % 5 else "oak\udcff", "b": "\udce9"}) for number in range(MANY)
    ]
    check(documents)


def test_many_batches_of_changing_documents() -> None:
    """What is remembered from batch to batch, such as that strings needed escapes, changes no text."""
    batches = DocumentBatches()
    for text in ("oak", 'o"k', "oak", "o\\k", "o\nk", "oak"):
        documents = [document({"a": text, "n": number}) for number in range(MANY)]
        (texts,) = batches.texts(*_laid_out(documents))
        assert texts.texts.to_pylist() == [*map(alone, documents)]
