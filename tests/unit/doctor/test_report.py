"""The doctor's report: findings as lines for a terminal, and as JSON."""

from __future__ import annotations

import json

from replica.cli.doctor import report
from replica.doctor import Finding, Remedy


def texts(findings: list[Finding], width: int | None) -> list[str]:
    return ["".join(span.text for span in line) for line in report(findings, width)]


FINDINGS = [
    Finding("a", "ok", "fine"),
    Finding(
        "b", "warning", "word " * 40, (Remedy("sql", "SET " + "x" * 100), Remedy("option file", "x = 1"))
    ),
    Finding("c\x1b[31m", "failure", "bad\nnews", tuple(Remedy("shell", f"do {n}") for n in range(20))),
]


def test_the_report_fits_the_terminal() -> None:
    lines = texts(FINDINGS, 80)
    assert lines[0] == "ok       a: fine"
    assert "         as an administrator of the source:" in lines
    assert "         in the source's option file, section [mysqld], for the next restart:" in lines
    # Remedies are not wrapped.
    assert "           SET " + "x" * 100 in lines
    assert all(len(line) <= 80 for line in lines if "xxx" not in line)
    assert lines[-2].strip() == "and 8 more (--format json prints all)"
    assert lines[-1] == "streaming cannot start: 1 ok, 1 warning, 1 failure"
    assert all(line.isprintable() for line in lines)
    assert len(texts(FINDINGS, None)) < len(lines)
    assert texts(FINDINGS[1:2] * 2, None)[-1] == "streaming can start: 2 warnings"


def test_findings_as_json() -> None:
    document = json.loads(json.dumps(FINDINGS[1].to_dict()))
    assert document["remedies"][1] == {"where": "option file", "text": "x = 1"}
    assert document["state"] == "warning"
