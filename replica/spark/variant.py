"""Arrow columns -> Spark's VARIANT, and the columns of a row -> one VARIANT object, for all rows of a batch at once.

The encoding is Parquet's ``VariantEncoding.md``, which Spark shares. Numbers, decimals, dates, timestamps with and
without time zone, binary values and strings keep their types; TIME and JSON columns become text, BIGINT UNSIGNED a
decimal. An object's ``metadata`` is the dictionary of its names, the same for all rows of a table. The envelope
around these objects is in ``envelope``.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..render.json_lines import time_text
from .json_text import decimal_texts

BINARY: Final = pa.binary()
#: Spark's own Arrow conversion takes a struct for a VARIANT if its second field has this metadata.
VARIANT_TYPE: Final = pa.struct(
    [
        pa.field("value", BINARY, nullable=False),
        pa.field("metadata", BINARY, nullable=False, metadata={"variant": "true"}),
    ]
)
_NOTHING: Final = pa.scalar(b"", BINARY)
_VARIANT_NULL: Final = pa.scalar(b"\0", BINARY)
_VERSION: Final = 1
_SORTED: Final = 0x10
_OBJECT, _ARRAY = 2, 3
_IS_LARGE_OBJECT, _IS_LARGE_ARRAY = 0x40, 0x10
_FOUR_BYTES: Final = 3  # "size minus one" of an offset
_WIDTHS: Final = ((0, 1 << 8, "<u1"), (1, 1 << 16, "<u2"), (_FOUR_BYTES, 1 << 32, "<u4"))
_SHORT_STRING, _MAX_SHORT_STRING = 1, 63
_MAX_DECIMAL_DIGITS: Final = 38

Bytes = npt.NDArray[np.uint8]


def _primitive(type_info: int) -> bytes:
    return bytes([type_info << 2])


_INT1, _INT2, _INT4, _INT8 = map(_primitive, (3, 4, 5, 6))
_DOUBLE, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _FLOAT = map(_primitive, (7, 11, 12, 13, 14))
_DECIMALS: Final = ((9, _primitive(8), 4), (18, _primitive(9), 8), (_MAX_DECIMAL_DIGITS, _primitive(10), 16))
_LONG_BINARY, _LONG_STRING = map(_primitive, (15, 16))


class ObjectLayout:
    """The shared parts of all objects with these member names, which are distinct; ``metadata`` is the dictionary."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [name.encode() for name in names]
        # The encoding wants members, and here also the dictionary, in the order of the bytes of their names.
        self._order = sorted(range(len(names)), key=encoded.__getitem__)
        self.metadata = _dictionary([encoded[index] for index in self._order])

    def objects(self, values: Sequence[pa.Array | None], size: int) -> pa.Array:
        """Objects with these members, which ``variant_values`` has encoded, in the order of ``names``.

        None leaves a member out.
        """
        found = [(number, values[index]) for number, index in enumerate(self._order)]
        ordered = [
            (number, pc.fill_null(value, _VARIANT_NULL)) for number, value in found if value is not None
        ]
        ends = np.zeros((size, len(ordered) + 1), np.int64)
        for place, (_, value) in enumerate(ordered):
            ends[:, place + 1] = ends[:, place] + pc.binary_length(value).to_numpy()
        width, dtype = _width(int(ends.max(initial=0)))
        head = pa.scalar(_object_head([number for number, _ in ordered], width), BINARY)
        offsets = ends.astype(dtype)
        rows = offsets.view(np.uint8).reshape(size, offsets.itemsize * (len(ordered) + 1))
        return _join(head, _fixed(rows), *(value for _, value in ordered))


def _width(largest: int) -> tuple[int, str]:
    """The narrowest width for numbers up to ``largest``: "size minus one", and the numpy type.

    An object of a narrow table is half as large as with four bytes, and Spark's time depends on the size.
    """
    return next((width, dtype) for width, end, dtype in _WIDTHS if largest < end)


def _object_head(numbers: Sequence[int], width: int) -> bytes:
    """The bytes before the offsets: type, number of members, their numbers in the dictionary."""
    count = len(numbers)
    is_large = count > 0xFF
    number_width, dtype = _width(max(numbers, default=0))
    header = _OBJECT | width << 2 | number_width << 4 | (_IS_LARGE_OBJECT if is_large else 0)
    head = bytes([header]) + count.to_bytes(4 if is_large else 1, "little")
    return head + np.array(numbers, dtype).tobytes()


def variant_array(values: pa.Array, metadata: bytes, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Encoded values as an array of Spark's VARIANT; NULL where ``valid`` is False."""
    if valid is None:
        names = pa.repeat(pa.scalar(metadata, BINARY), len(values))
        return pa.StructArray.from_arrays(
            [pc.fill_null(values, _VARIANT_NULL), names], fields=list(VARIANT_TYPE)
        )
    if not valid.any():
        return pa.nulls(len(values), VARIANT_TYPE)
    # Arrow also sends the bytes of a NULL value: make them empty.
    is_valid = pa.array(valid)
    children = [
        pc.if_else(is_valid, pc.fill_null(values, _VARIANT_NULL), _NOTHING),
        pc.if_else(is_valid, pa.scalar(metadata, BINARY), _NOTHING),
    ]
    return pa.StructArray.from_arrays(children, fields=list(VARIANT_TYPE), mask=pc.invert(is_valid))


def variant_values(array: pa.Array) -> pa.Array:
    """Each value of a column, encoded; null for nulls."""
    return _CONVERTERS[array.type.id](array)


def strings(array: pa.Array) -> pa.Array:
    """Strings, encoded; short ones have their length in the first byte."""
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy()
    if not len(lengths) or int(lengths.max()) <= _MAX_SHORT_STRING:
        heads = (lengths << 2 | _SHORT_STRING).astype(np.uint8).reshape(-1, 1)
        return _join(_fixed(heads), array.cast(BINARY))
    return _after_length(_LONG_STRING, array.cast(BINARY), lengths)


def _dictionary(names: Sequence[bytes]) -> bytes:
    ends = np.cumsum([0, *map(len, names)])
    width, dtype = _width(max(int(ends[-1]), len(names)))
    head = bytes([_VERSION | _SORTED | width << 6]) + np.array([len(names)], dtype).tobytes()
    return head + ends.astype(dtype).tobytes() + b"".join(names)


def _fixed(rows: Bytes) -> pa.Array:
    """A binary array of values of equal length, the rows of a matrix."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    if int(offsets[-1]) >= 1 << 31:
        raise OverflowError("more than 2 GiB of values in one batch")
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(BINARY, count, [None, pa.py_buffer(offsets.astype(np.int32)), data])


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _after_length(head: bytes, array: pa.Array, lengths: npt.NDArray[Any]) -> pa.Array:
    return _join(_after_head(head, _little_endian(lengths, "<u4")), array)


def _little_endian(numbers: npt.NDArray[Any], dtype: str) -> Bytes:
    plain = np.ascontiguousarray(numbers.astype(dtype))
    return plain.view(np.uint8).reshape(len(plain), plain.itemsize)


def _after_head(head: bytes, rows: Bytes) -> pa.Array:
    """Values of equal length, each after ``head``, its type. Arrow's join would take several times as long."""
    whole = np.empty((len(rows), len(head) + rows.shape[1]), np.uint8)
    whole[:, : len(head)] = np.frombuffer(head, np.uint8)
    whole[:, len(head) :] = rows
    return _fixed(whole)


def _with_nulls(encoded: pa.Array, array: pa.Array) -> pa.Array:
    return encoded if not array.null_count else pc.if_else(array.is_valid(), encoded, pa.scalar(None, BINARY))


def _numbers(head: bytes, dtype: str, through: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """A converter for numbers of fixed width, each after its type."""

    def convert(array: pa.Array) -> pa.Array:
        plain = array.cast(through)
        numbers = pc.fill_null(plain, pa.scalar(0, through)).to_numpy(zero_copy_only=False)
        return _with_nulls(_after_head(head, _little_endian(numbers, dtype)), array)

    return convert


def _moments(array: pa.Array) -> pa.Array:
    head = _TIMESTAMP_NTZ if array.type.tz is None else _TIMESTAMP
    return _numbers(head, "<i8", pa.int64())(array)


def _decimals(array: pa.Array) -> pa.Array:
    if array.type.precision > _MAX_DECIMAL_DIGITS:
        return strings(decimal_texts(array))
    head, size = next((head, size) for digits, head, size in _DECIMALS if array.type.precision <= digits)
    words = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, 16)
    numbers = words[array.offset : array.offset + len(array), :size]
    head += bytes([array.type.scale])
    return _with_nulls(_after_head(head, numbers), array)


def _unsigned_longs(array: pa.Array) -> pa.Array:
    return _decimals(array.cast(pa.decimal128(20, 0)))


def _binaries(array: pa.Array) -> pa.Array:
    return _after_length(_LONG_BINARY, array, pc.fill_null(pc.binary_length(array), 0).to_numpy())


def _times(array: pa.Array) -> pa.Array:
    texts = [None if value is None else time_text(value) for value in array.to_pylist()]
    return strings(pa.array(texts, pa.string()))


def _vectors(array: pa.Array) -> pa.Array:
    return pa.array([None if value is None else _vector(value) for value in array.to_pylist()], BINARY)


def _vector(values: list[float]) -> bytes:
    count = len(values)
    header = _ARRAY | _FOUR_BYTES << 2 | _IS_LARGE_ARRAY
    elements = np.empty((count, 5), np.uint8)
    elements[:, 0] = _FLOAT[0]
    elements[:, 1:] = _little_endian(np.array(values), "<f4")
    offsets = (np.arange(count + 1) * 5).astype("<u4")
    return bytes([header]) + count.to_bytes(4, "little") + offsets.tobytes() + elements.tobytes()


_CONVERTERS: Final[Mapping[int, Callable[[pa.Array], pa.Array]]] = MappingProxyType(
    {
        pa.null().id: lambda array: pa.nulls(len(array), BINARY),
        pa.int8().id: _numbers(_INT1, "<i1", pa.int8()),
        pa.int16().id: _numbers(_INT2, "<i2", pa.int16()),
        pa.int32().id: _numbers(_INT4, "<i4", pa.int32()),
        pa.int64().id: _numbers(_INT8, "<i8", pa.int64()),
        pa.uint8().id: _numbers(_INT2, "<i2", pa.int16()),
        pa.uint16().id: _numbers(_INT4, "<i4", pa.int32()),
        pa.uint32().id: _numbers(_INT8, "<i8", pa.int64()),
        pa.uint64().id: _unsigned_longs,
        pa.float32().id: _numbers(_FLOAT, "<f4", pa.float32()),
        pa.float64().id: _numbers(_DOUBLE, "<f8", pa.float64()),
        pa.decimal128(1, 0).id: _decimals,
        pa.decimal256(1, 0).id: _decimals,
        pa.date32().id: _numbers(_DATE, "<i4", pa.int32()),
        pa.timestamp("us").id: _moments,
        pa.duration("us").id: _times,
        pa.string().id: strings,
        pa.binary().id: _binaries,
        pa.list_(pa.float32()).id: _vectors,
    }
)
