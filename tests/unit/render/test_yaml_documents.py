"""YAML documents: a YAML reader gets back the objects of the JSON lines."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml

from protocol.errors import MissingExtraError
from replica.render.json_lines import EventObjects, plain
from replica.render.json_values import JsonDocument
from replica.render.yaml_documents import YamlRenderer
from tests.support.rendered_events import column, gtid, inserts, query, table, updates, written, xid
from tests.support.rendered_values import DOCUMENTS, VALUES

ORDERS = table(column("id"), column("status"), key=["id"])


def documents(*events: Any) -> list[Any]:
    text = written(YamlRenderer, *events)
    assert text.startswith(b"---\n")
    return list(yaml.safe_load_all(text))


def test_they_are_the_objects_of_json_lines() -> None:
    events = [
        gtid(),
        query("BEGIN"),
        *(inserts(ORDERS, (1, value)) for value, _ in VALUES),
        *(inserts(ORDERS, (1, JsonDocument(document))) for document, _ in DOCUMENTS),
        updates(ORDERS, ((1, "a"), (1, "b"))),
        xid(),
    ]
    objects = EventObjects()
    assert documents(*events) == [plain(value) for event in events for value in objects.of(event)]


@pytest.mark.parametrize(
    "text",
    ["", "~", "null", "yes", "1_000", "1e5", "12:30:45", "- a", "a: b", "\n a\n", "\x85\u2028", "x " * 300],
)
def test_text_stays_text(text: str) -> None:
    assert documents(inserts(ORDERS, (1, text)))[0]["after"] == {"id": 1, "status": text}


@pytest.mark.parametrize("has_libyaml", [True, False])
def test_line_breaks_of_unicode_stay_beside_bytes_that_are_no_text(
    monkeypatch: pytest.MonkeyPatch, has_libyaml: bool
) -> None:
    if not has_libyaml:
        monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    for texts in (("a\x85\u2028b", "é"), ("\x85", "\udcff")):
        assert documents(inserts(ORDERS, texts))[0]["after"] == dict(
            zip(("id", "status"), texts, strict=True)
        )


def test_equal_values_are_written_twice() -> None:
    value: Any = {"a": [1]}
    assert b"&" not in written(YamlRenderer, inserts(ORDERS, (JsonDocument(value), JsonDocument(value))))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"\[yaml\]"):
        written(YamlRenderer)


def test_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    assert documents(xid())[0]["xid"] == 77
