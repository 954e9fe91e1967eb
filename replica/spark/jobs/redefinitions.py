"""ALTER TABLE gives a column another type, or texts another character set: does the server change stored values?

The log does not have the new values. If the server changed any, the table cannot be kept any longer.
"""

from functools import partial

from protocol.errors import SchemaMismatchError

from ...sql import ddl
from ...sql.dialect import STRICT
from .changed_values import NOT_NULL, ZEROFILL, changes_values
from .job_state import TableState
from .kept_table import KeptTable, Step
from .lost_characters import loses_characters

#: The name under which ``TableState.kinds`` has the table's default character set, if a statement has said it.
_CHARSET = ""


def known_columns(action: ddl.CreateTable) -> tuple[dict[str, str | None], dict[str, str]]:
    """What CREATE TABLE says of columns: the defaults that are plain values, and ``TableState.kinds``."""
    columns = action.columns or ()
    kinds = {_CHARSET: action.charset} | {column.name: noted_kind(column) for column in columns}
    return {column.name: column.default for column in columns if not column.is_filled}, kinds


def noted_kind(column: ddl.ColumnDefinition) -> str:
    """The kind of a column in ``TableState.kinds``."""
    if column.says_not_null and column.kind.startswith("TIMESTAMP"):
        return f"{column.kind}{NOT_NULL}"
    return f"{column.kind}{ZEROFILL}" if column.is_zerofill else column.kind


def redefine(
    table: KeptTable, known: TableState, name: str, column: ddl.ColumnDefinition, step: Step, sql_mode: int
) -> None:
    """Note another definition of a column. Raises ``SchemaMismatchError`` if that changes its values."""
    before = known.kinds.get(name)
    is_changed = partial(
        changes_values,
        column.kind,
        is_nullable=column.is_nullable,
        before=before,
        is_unsigned=column.is_unsigned,
    )
    if name in table.fields() and not table.is_taken(step):
        if any(map(is_changed, table.values(name))):
            raise refused(table.name, f"the server changes values of {name} in the new type {column.kind}")
        if column.kind != "JSON":
            _check_characters(table, name, column.charset or known.kinds.get(_CHARSET, ""), sql_mode)
    if known.set_default(name, column, table.fields()):
        known.kinds[name] = noted_kind(column)


def set_charset(
    table: KeptTable, known: TableState, action: ddl.SetCharset, step: Step, sql_mode: int
) -> None:
    """Note another character set of a table. Raises ``SchemaMismatchError`` if texts lose characters by it."""
    if action.is_conversion and not table.is_taken(step):
        for name in table.fields():
            _check_characters(table, name, action.charset, sql_mode)
    known.kinds[_CHARSET] = action.charset


def _check_characters(table: KeptTable, name: str, charset: str, sql_mode: int) -> None:
    # In strict mode the statement fails instead.
    if (
        charset
        and not sql_mode & STRICT
        and any(loses_characters(part, charset) for part in table.values(name))
    ):
        raise refused(
            table.name, f"the server writes ? in {name}, as {charset} lacks characters of its values"
        )


def refused(table: str, why: str) -> SchemaMismatchError:
    """The error of a table that cannot be kept any longer."""
    return SchemaMismatchError(f"{table} cannot be kept any longer: {why}")
