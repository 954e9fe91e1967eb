"""The rows of a kept table in another form, after DDL: new columns and types, other names, ended states.

A ``Conversion`` describes the changes to all rows, and goes to the tasks that make them (``convert_tasks``) as JSON.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import SchemaMismatchError
from protocol.records import field, record

from .column_values import constant
from .staging import schema_from_text, schema_to_text
from .stamps import all_deleted, unstamped
from .states import ended, present

_NOTHING: Final = pa.schema([])


@record(frozen=True, slots=True)
class Conversion:
    """The changes to a table's rows; with the defaults of all fields, rows stay as they are.

    ``spelled`` maps columns to new spellings, ``wanted`` has the source's columns, ``filled`` the values of new
    columns in present rows, as SQL text. ``renamed`` is a column and its new name, ``dropped`` a column to drop.
    ``ended``: all present states end at this time, in microseconds since 1970. ``begun``: rows become present states,
    which begin at this time, with this sequence number. ``stamps``: rows get these columns of the module ``stamps``.
    ``deleted`` has the time and the number of a statement that deletes all rows; they stay, marked as deleted.
    ``own`` names the columns that are not the source's; in a history (``is_history``) columns that the source has
    dropped stay. ``is_lenient``: values that cannot be converted become null.
    """

    table: str
    own: tuple[str, ...] = ()
    is_history: bool = False
    spelled: Mapping[str, str] = field(default_factory=dict)
    wanted: pa.Schema = _NOTHING
    filled: Mapping[str, str | None] = field(default_factory=dict)
    renamed: tuple[str, str] | None = None
    dropped: str | None = None
    ended: int | None = None
    begun: tuple[int | None, int] | None = None
    stamps: tuple[str, ...] = ()
    deleted: tuple[int, int] | None = None
    is_lenient: bool = False

    def apply(self, rows: pa.Table) -> pa.Table:
        """The converted rows. Raises ``SchemaMismatchError`` if their values cannot be converted."""
        if self.spelled:
            rows = rows.rename_columns([self.spelled.get(name, name) for name in rows.schema.names])
        if len(self.wanted):
            rows = self._with_columns(rows)
        if self.renamed is not None:
            rows = self._with_name(rows, *self.renamed)
        if self.dropped is not None:
            rows = rows.drop_columns([self.dropped])
        if self.begun is not None:
            rows = present(rows, *self.begun)
        if self.stamps:
            rows = unstamped(rows, self.stamps)
        if self.deleted is not None:
            rows = all_deleted(rows, *self.deleted)
        return rows if self.ended is None else ended(rows, self.ended)

    def _with_columns(self, rows: pa.Table) -> pa.Table:
        """The rows with the wanted columns of the source, and the table's own columns."""
        kept: list[str] = list(self.own)
        if self.is_history:
            kept = [name for name in rows.schema.names if name not in self.wanted.names]
        columns, fields = [], []
        for one in self.wanted:
            column = self._column(rows, one.name, one.type)
            if one.name in self.filled:
                value = constant(self.table, one.name, self.filled[one.name], one.type)
                # Past states did not have the column.
                column = (
                    pc.if_else(rows["is_current"], value, column)
                    if self.is_history
                    else pa.repeat(value, rows.num_rows)
                )
            columns.append(column)
            fields.append(pa.field(one.name, one.type))
        columns += [rows[name] for name in kept]
        fields += [rows.schema.field(name) for name in kept]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _column(self, rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        if name not in rows.schema.names:
            return pa.nulls(rows.num_rows, kind)
        column = rows[name]
        if column.type == kind:
            return column
        if not rows.num_rows:
            return pa.array([], kind)
        if not _may_become(column.type, kind):
            if self.is_lenient:
                return pa.nulls(rows.num_rows, kind)
            raise self._mismatch(name, column.type, kind)
        try:
            if pa.types.is_decimal(column.type) and pa.types.is_string(kind):
                # Only few processes need this module.
                from ..json_text import decimal_texts

                return pa.chunked_array([decimal_texts(chunk) for chunk in column.chunks], kind)
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if self.is_lenient:
                return pa.array([_cast(value, kind) for value in column], kind)
            raise self._mismatch(name, column.type, kind) from error

    def _mismatch(self, name: str, found: pa.DataType, wanted: pa.DataType) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{self.table}: column {name} was {found} and is {wanted} now, and the log does not show how the source "
            "converted its values"
        )

    def _with_name(self, rows: pa.Table, name: str, new_name: str) -> pa.Table:
        """The rows with a column renamed. A column that has the new name already was dropped earlier."""
        if new_name in rows.schema.names and self.is_history:
            # Past states with a column of the new name keep its values.
            if rows.schema.field(name).type != rows.schema.field(new_name).type:
                raise SchemaMismatchError(
                    f"{self.table}: column {name} was renamed to {new_name}, and earlier states have a column of "
                    "that name with another type: begin a new history, or exclude the table"
                )
            values = pc.coalesce(rows[name], rows[new_name])
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
        if new_name in rows.schema.names:
            rows = rows.drop_columns([new_name])
        return rows.rename_columns([new_name if found == name else found for found in rows.schema.names])

    def to_json(self) -> dict[str, Any]:
        """The conversion as JSON."""
        return {
            "table": self.table,
            "own": self.own,
            "is_history": self.is_history,
            "spelled": dict(self.spelled),
            "wanted": schema_to_text(self.wanted),
            "filled": dict(self.filled),
            "renamed": self.renamed,
            "dropped": self.dropped,
            "ended": self.ended,
            "begun": self.begun,
            "stamps": self.stamps,
            "deleted": self.deleted,
            "is_lenient": self.is_lenient,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Conversion":
        """The reverse of ``to_json``."""
        pairs = {name: data[name] and tuple(data[name]) for name in ("renamed", "begun", "deleted")}
        pairs |= {name: tuple(data[name]) for name in ("own", "stamps")}
        changed = {"wanted": schema_from_text(data["wanted"]), **pairs}
        return cls(**{**data, **changed})


def _may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the source converts values as Arrow's cast does. It does not for texts, nor for times with a zone."""
    numbers = [pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in (found, wanted)]
    if all(numbers):
        return True
    if pa.types.is_string(wanted):
        return bool(numbers[0])
    return bool(pa.types.is_floating(wanted) and (pa.types.is_floating(found) or pa.types.is_integer(found)))


def _cast(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """A value in another type; null if the type cannot hold it."""
    try:
        return value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.scalar(None, kind)
