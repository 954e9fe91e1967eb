"""Defaults of columns: SQL text -> the values that rows without them have."""

import contextlib
from collections.abc import Mapping

import pyarrow as pa

from protocol.errors import SchemaMismatchError


def constant(table: str, column: str, text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a default in SQL text. Raises ``SchemaMismatchError`` if it cannot be read as this type."""
    if text is None:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_boolean(kind) or pa.types.is_list(kind):
            raise pa.ArrowInvalid("no literal")
        return pa.array([text], pa.string()).cast(kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"{table}: the default {text!r} of column {column} cannot be read as {kind}"
        ) from error


def constants(table: str, schema: pa.Schema, texts: Mapping[str, str | None]) -> dict[str, pa.Scalar]:
    """The default values of columns; a default that cannot be read is left out."""
    found = {}
    for name, text in texts.items():
        if name in schema.names:
            with contextlib.suppress(SchemaMismatchError):
                found[name] = constant(table, name, text, schema.field(name).type)
    return found
