"""Documents laid out alike: how many are read by their layouts, in which order, and when layouts are given up."""

from __future__ import annotations

import random

import numpy as np

from protocol.values.jsonb import decode_json
from protocol.values.jsonb_text import render_json
from replica.arrow import document_layouts
from replica.arrow.buffer import RowBuffer
from replica.arrow.document_layouts import DocumentLayouts, group_texts
from tests.support.json_documents import document

MANY = 1000


def read(layouts: DocumentLayouts, documents: list[bytes]) -> int:
    """The number of documents that the layouts read; their texts must be those of each alone."""
    ends = np.cumsum([len(data) for data in documents])
    starts = ends - np.array([len(data) for data in documents])
    buffer = RowBuffer(documents)
    groups = layouts.groups(buffer, starts, ends)
    count = 0
    for texts in group_texts(buffer, groups, starts):
        expected = [render_json(decode_json(documents[row])) for row in texts.rows.tolist()]
        assert texts.rows.tolist() == sorted(texts.rows.tolist())
        assert texts.texts.to_pylist() == expected
        count += len(expected)
    return count


def test_layouts_of_one_plan_are_put_together_in_the_order_of_the_documents() -> None:
    rng = random.Random(5)
    values = [
        {"n": rng.choice((7, 70_000, 1 << 40)), "text": rng.choice(("", "oak\\n")), "x": rng.random()}
        for _ in range(MANY)
    ]
    layouts = DocumentLayouts()
    assert read(layouts, [document(value) for value in values]) == MANY
    assert len(layouts._plans) == 1


def test_documents_that_differ_between_their_values_are_not_read() -> None:
    documents = [document({"a": "oak", "b": number}) for number in range(MANY)]
    others = [document({"c": "oak", "b": number}) for number in range(10)]
    assert read(DocumentLayouts(), documents + others) == MANY


def test_strings_that_all_documents_have_and_one_that_only_one_document_lacks() -> None:
    values = [{"kind": 'a "view"\n', "state": "good", "empty": "", "n": number} for number in range(MANY)]
    values[MANY // 3]["state"] = "evil"
    assert read(DocumentLayouts(), [document(value) for value in values]) == MANY


def test_layouts_are_given_up_where_few_documents_recur() -> None:
    rng = random.Random(5)
    layouts = DocumentLayouts()
    rounds = 0
    while not layouts._is_over:
        documents = [
            document({"a": "x" * rng.randrange(90), "b": "y" * rng.randrange(90)}) for _ in range(2048)
        ]
        read(layouts, documents)
        rounds += 1
        assert rounds <= document_layouts._PATIENCE // 2048
    assert layouts.groups(RowBuffer([b""]), np.zeros(0, np.int64), np.zeros(0, np.int64)) == []
