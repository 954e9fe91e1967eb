"""What a job that keeps tables must know from one micro-batch to the next, in a small Delta table within its target.

    target/_state/tables    a row for each table that is known, each part of a prepared XA transaction, and so on

It is written last of all in a micro-batch, with the number of that as its transaction's version, and only if it has
changed: a micro-batch that is run again finds it as it was, or finds that everything is done.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from protocol.errors import CheckpointError

FOLDER: Final = "_state/tables"
_SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("name", pa.string()), ("value", pa.string()), ("data", pa.binary())]
)
_Row = tuple[str, str, str, bytes | None]


@dataclass(slots=True)
class TableState:
    """A table whose rows are all known.

    ``defaults`` are those of its columns, as text, where they are plain values; ``fills`` what columns that the
    target has not got yet hold in its rows; ``kinds`` the types that statements gave to columns. ``is_seeded``:
    columns are those of a seed, and what has come since.
    """

    defaults: dict[str, str | None] = field(default_factory=dict)
    is_seeded: bool = False
    fills: dict[str, str | None] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def spelled(self, name: str, others: Iterable[str] = ()) -> str:
        """A column's name as the log has it: ``ID`` and ``id`` are the same there. ``others`` are known, too."""
        known = {*self.defaults, *self.fills, *self.kinds, *others}
        if name in known:
            return name
        return next((one for one in sorted(known) if one.lower() == name.lower()), name)


@dataclass(slots=True)
class JobState:
    """``schemas`` and ``absent`` are schemas and tables that the log itself has seen begin, or end.

    ``prepared`` are the rows of XA transactions by id, as table and packed rows. ``is_birth``: the log begins where
    the server's life does. ``folds_names``: the server has names of tables in small letters, whatever statements say.
    """

    tables: dict[str, TableState] = field(default_factory=dict)
    schemas: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    prepared: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    is_birth: bool = False
    folds_names: bool = False

    def rows(self) -> list[_Row]:
        """As it is stored."""
        return list(self._rows())

    def _rows(self) -> Iterator[_Row]:
        yield "log", "is_birth", json.dumps(self.is_birth), None
        yield "log", "folds_names", json.dumps(self.folds_names), None
        for name, table in sorted(self.tables.items()):
            yield "table", name, json.dumps(asdict(table)), None
        for name in sorted(self.schemas):
            yield "schema", name, "", None
        for name in sorted(self.absent):
            yield "absent", name, "", None
        for xa, parts in sorted(self.prepared.items()):
            for number, (name, data) in enumerate(parts):
                yield "xa", xa, json.dumps([number, name]), data

    @classmethod
    def from_rows(cls, rows: list[_Row]) -> "JobState":
        """The reverse of ``rows``."""
        state = cls()
        parts = []
        for kind, name, value, data in rows:
            if kind == "log" and name == "folds_names":
                state.folds_names = json.loads(value)
            elif kind == "log":
                state.is_birth = json.loads(value)
            elif kind == "table":
                state.tables[name] = TableState(**json.loads(value))
            elif kind == "xa":
                number, table = json.loads(value)
                parts.append((name, number, table, data or b""))
            else:
                (state.schemas if kind == "schema" else state.absent).add(name)
        for xa, _, table, packed in sorted(parts):
            state.prepared.setdefault(xa, []).append((table, packed))
        return state


def exists(target: str) -> bool:
    """Whether a job has begun there."""
    return DeltaTable.is_deltatable(f"{target}/{FOLDER}")


def load(target: str, query: str, batch: int) -> tuple[JobState, int] | None:
    """The state, and the last micro-batch that has changed it; None where this query begins.

    Raises ``CheckpointError`` for a target that is another query's.
    """
    try:
        table = DeltaTable(f"{target}/{FOLDER}")
    except TableNotFoundError:
        if batch > 0:
            raise CheckpointError(
                f"{target}: the state is that of a query which goes on at batch {batch}, and there is nothing of it "
                "here -- give the state of this target, or delete the state to begin anew"
            ) from None
        return None
    done = table.transaction_version(query)
    if done is None:
        raise CheckpointError(
            f"{target}: the tables here are those of another query -- give its state, or another target"
        )
    columns = [column.to_pylist() for column in table.to_pyarrow_table().columns]
    return JobState.from_rows(list(zip(*columns, strict=True))), done


def save(target: str, state: JobState, query: str, batch: int) -> None:
    """Have it on disk, as that behind this micro-batch."""
    columns = zip(*state.rows(), strict=True)
    rows = pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
    write_deltalake(
        f"{target}/{FOLDER}",
        rows,
        mode="overwrite",
        commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
    )
