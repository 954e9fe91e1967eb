"""Schema files: column names and types that a log lacks, and which columns are generated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.errors import ConfigurationError
from protocol.rows.description import ColumnDescription
from replica.files.schema_file import read_schema_file
from replica.files.table_descriptions import SchemaFile


def schema_of(tmp_path: Path, content: object) -> SchemaFile:
    path = tmp_path / "schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_schema_file(str(path))


def test_a_schema_file(tmp_path: Path) -> None:
    read = schema_of(
        tmp_path,
        {
            "shop.orders": [
                {"position": 2, "name": "g", "type": "INT(10) unsigned", "generated": 1, "nullable": False},
                {"position": 1, "name": "id", "type": "enum('a')", "charset": "latin1", "primary": True},
            ],
            "shop.quoted": json.dumps([{"name": "a", "type": "inet6", "charset": None, "generated": 0}]),
        },
    )
    assert read.columns == {
        "shop.orders": [
            ColumnDescription("id", "enum", "enum('a')", True, "latin1", True),
            ColumnDescription("g", "int", "INT(10) unsigned", False, None, False),
        ],
        "shop.quoted": [ColumnDescription("a", "inet6", "inet6", True, None, False)],
    }
    assert read.generated == {"shop.orders": {"g"}, "shop.quoted": frozenset()}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        "\udcff".encode("utf-8", "surrogatepass").decode("latin1"),
        "[]",
        "null",
        {"t": 5},
        {"t": "no JSON"},
        {"t": ["name"]},
        {"t": [{"name": "a"}]},
        {"t": [{"type": "int"}]},
        {"t": [{"name": "a", "type": 5}]},
        {"t": [{"name": "a", "type": ""}]},
        {"t": [{"name": "a", "type": "int", "charset": 5}]},
        {"t": [{"name": "a", "type": "int", "position": "x"}]},
        {"t": [{"name": "a", "type": "int", "nmae": 5}]},
    ],
    ids=lambda content: str(content)[:30],
)
def test_schema_files_that_are_none(tmp_path: Path, content: object) -> None:
    with pytest.raises(ConfigurationError, match="schema: "):
        schema_of(tmp_path, content)


def test_a_file_that_is_missing_and_has_an_at_sign_in_its_name(tmp_path: Path) -> None:
    """The error spoke of a position, and named neither the option nor the file."""
    path = f"{tmp_path}/shop@prod.json"
    with pytest.raises(
        ConfigurationError, match=rf"^schema: there is no file {path}, and 'prod.json' is not a place"
    ):
        read_schema_file(path)


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(ConfigurationError, match=r"^schema: .*embedded null"):
        read_schema_file("schema\0.json")
