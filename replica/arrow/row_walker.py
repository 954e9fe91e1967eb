"""The plan of a row's images -> a compiled function that follows the rows of one event, one after another.

It is for few large events; ``row_starts`` finds the rows of many events at once. For inserts into a table of INT,
VARCHAR(10) and nullable DOUBLE the function is

    def find_rows(data, position, end, append):
        while position < end:
            append(position)
            b0 = data[position]
            position += 5 - t0[b0]
            if not b0 & 2:
                position += 1 + data[position]
            position += 8 - t1[b0]
        return position

where t0 and t1 are tables: for each byte of NULL bits, the number of bytes that these NULLs take away. The generated
text has only integers and identifiers made here. Tracebacks and debuggers show it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from protocol.rows.bounded_cache import remembered
from protocol.rows.generated_source import run

from .plan import ImagePlan, VariablePart

FindRows = Callable[[bytes, int, int, Callable[[int], None]], int]

_LENGTHS = {
    1: "1 + data[position]",
    2: "2 + data[position] + (data[position + 1] << 8)",
    3: "3 + data[position] + (data[position + 1] << 8) + (data[position + 2] << 16)",
    4: "4 + from_bytes(data[position:position + 4], 'little')",
}
# Memory for compiled functions, which are about 5 KB for a table of a few columns. A part of an image, a
# variable-length column as a rule, is about six lines; a table of NULL bits has 256 numbers, here and in the plan.
_FUNCTIONS_BYTES = 32 << 20
_FUNCTION_SIZE = 4000
_SIZE_PER_PART = 1500
_SIZE_PER_TABLE = 4500


def finder_size(images: tuple[ImagePlan, ...], find_rows: FindRows) -> int:
    """About how many bytes a compiled function takes, with the plans in its key."""
    parts = [part for image in images for part in image.parts]
    return (
        _FUNCTION_SIZE
        + _SIZE_PER_PART * len(parts)
        + _SIZE_PER_TABLE * sum(len(part.nulls) for part in parts)
    )


@remembered(_FUNCTIONS_BYTES, finder_size)
def row_finder(images: tuple[ImagePlan, ...]) -> FindRows:
    """A function ``(data, position, end, append) -> position`` that appends the place of each image of each row.

    It returns the end of the last row, which differs from ``end`` if the rows are damaged. It raises ``IndexError``
    for damaged rows that lead out of the data.
    """
    namespace: dict[str, Any] = {"from_bytes": int.from_bytes}
    lines = ["def find_rows(data, position, end, append):", "    while position < end:"]
    for image in images:
        lines += (f"        {line}" for line in _image(image, namespace))
    # The text has only integers and names made here.
    run("\n".join([*lines, "    return position", ""]), "row finder", namespace)
    find_rows: FindRows = namespace["find_rows"]
    return find_rows


def _image(image: ImagePlan, namespace: dict[str, Any]) -> Iterator[str]:
    yield "append(position)"
    if image.diff_bytes:
        yield f"position += {1 + image.diff_bytes} if data[position] & 1 else 1"
    for index, mask in enumerate(image.null_mask):
        place = f"position + {index}" if index else "position"
        yield f"b{index} = data[{place}]" if mask == 0xFF else f"b{index} = data[{place}] & {mask}"
    null_bytes = len(image.null_mask)
    for part in image.parts:
        taken = []
        for index, table in part.nulls:
            name = f"t{len(namespace)}"
            namespace[name] = tuple(table.tolist())
            taken.append(f" - {name}[b{index}]")
        if null_bytes + part.fixed_size:
            yield f"position += {null_bytes + part.fixed_size}{''.join(taken)}"
        null_bytes = 0
        if part.variable is not None:
            yield from _variable(part.variable)


def _variable(variable: VariablePart) -> Iterator[str]:
    yield f"if not b{variable.null_byte} & {variable.null_bit}:"
    yield f"    position += {_LENGTHS[variable.length_bytes]}"
