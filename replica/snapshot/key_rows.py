"""Reads the rows of single keys, whose values come from the log, not from the server: rows to be read again."""

from collections.abc import Sequence
from typing import Final

from protocol.rows.column import Column

from ..source.session import Session
from ..sql.quoting import identifier
from .chunk_reader import SILENCE, read_few
from .read_plan import ReadPlan
from .row_keys import key_bytes, key_literal
from .touches import Key, Row

#: So many keys go into one statement. Its time grows with the square of them (1,000 keys of three columns: 50 to
#: 140 ms), and for 1,000 MariaDB 11.8 reads the whole table.
KEYS_AT_ONCE: Final = 200
# A key is unique; this leaves room for types that are compared otherwise than they are stored.
_MOST_OF_A_KEY: Final = 16
_SURROGATES: Final = "surrogateescape"


async def rows_of_keys(session: Session, plan: ReadPlan, keys: Sequence[Key], suffix: str = "") -> list[Row]:
    """The rows that have these keys; by the rules of collations also rows whose keys only count as equal."""
    definitions = await session.start_rows(keys_sql(plan, keys) + suffix, SILENCE)
    plan.select.check(definitions)
    return plan.select.rows(await read_few(session, SILENCE, _MOST_OF_A_KEY * len(keys)))


def keys_sql(plan: ReadPlan, keys: Sequence[Key], names: Sequence[str] | None = None) -> str:
    """The SELECT of the rows of these keys, which are values of the columns ``names``; None: of the plan's key."""
    indexes = plan.select.key if names is None else [plan.table.column_names.index(name) for name in names]
    columns = [(plan.table.columns[index], plan.shape.columns[index].type) for index in indexes]
    wanted = " OR ".join(
        "("
        + " AND ".join(
            f"{identifier(column.name)} = {_literal(column, kind, value)}"
            for (column, kind), value in zip(columns, key, strict=True)
        )
        + ")"
        for key in keys
    )
    table = f"{identifier(plan.table.schema)}.{identifier(plan.table.name)}"
    return f"SELECT {plan.select.sql} FROM {table} WHERE ({wanted})"


def _literal(column: Column, kind: str, value: object) -> str:
    if isinstance(value, str):
        return f"_utf8mb4 X'{value.encode('utf-8', _SURROGATES).hex()}'"
    if isinstance(value, int) and (column.labels is not None or kind in ("enum", "set")):
        return str(value)
    return key_literal(column, kind, key_bytes(value))
