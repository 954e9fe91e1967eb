"""Shapes of thousands of tables, which all pieces of a relay's files carry to the tasks. No Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

pytest.importorskip("pyarrow")

from replica.schemas.shape import ColumnShape, Key, Shape
from replica.spool.pieces import LogPiece
from replica.spool.placed_shapes import SharedShapes

TABLES = 1000


def shape_of(number: int) -> Shape:
    columns = [
        ColumnShape(f"column_{number}_{one}", "varchar", (one,), charset="utf8mb4") for one in range(20)
    ]
    return Shape(tuple(columns), Key("PRIMARY", "primary", ((columns[0].name, 0),)), (), "utf8mb4", "innodb")


def test_the_pieces_of_a_log_share_compressed_shapes() -> None:
    shapes = {f"shop.t{number}": (((0, 1, 4), shape_of(number)),) for number in range(TABLES)}
    shared = SharedShapes(shapes)
    assert shared == shapes
    piece = LogPiece("/logs/binlog.000001", "binlog.000001", 1, shapes=shared)
    first = pickle.dumps(piece)
    assert len(first) < len(pickle.dumps(replace(piece, shapes=shapes))) / 10
    assert pickle.loads(first).shapes == shapes
    # Compressed once only.
    assert shared.__reduce__()[1][0] is shared.__reduce__()[1][0]
