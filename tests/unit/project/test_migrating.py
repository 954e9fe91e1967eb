"""MIGRATING.md names what is there: options of ``replica.connect``, and attributes of events."""

from __future__ import annotations

import inspect
import re

import pytest

import replica
from tests.support.places import ROOT

TEXT = (ROOT / ".github" / "MIGRATING.md").read_text()
#: The right column of each table.
OURS = [cells[2] for line in TEXT.splitlines() if len(cells := line.split("|")) == 4]


def test_both_columns_are_found() -> None:
    assert len(OURS) > 40


@pytest.mark.parametrize(
    "option", sorted({option for cell in OURS for option in re.findall(r"`(\w+)=", cell)})
)
def test_options_are_those_of_connect(option: str) -> None:
    assert option in inspect.signature(replica.connect).parameters


@pytest.mark.parametrize(
    ("event", "attribute"),
    sorted({found for cell in OURS for found in re.findall(r"`(\w+Event)\.(\w+)`", cell)}),
)
def test_attributes_are_those_of_events(event: str, attribute: str) -> None:
    kind = getattr(replica, event)
    assert attribute in dir(kind)
