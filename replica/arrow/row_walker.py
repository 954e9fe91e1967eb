"""From a layout to one compiled function that finds where rows begin, one row after the other.

It serves few large events; ``offsets`` has what finds the rows of many events at once. For inserts into a table of
INT, VARCHAR(10) and nullable DOUBLE the function is

    def find_rows(data, position, end, append):
        while position < end:
            append(position)
            b0 = data[position]
            position += 5 - t0[b0]
            if not b0 & 2:
                position += 1 + data[position]
            position += 8 - t1[b0]
        return position

where t0 and t1 are tables: the bytes that NULLs take away, by a byte of NULL bits. Generated text holds only integers
and identifiers made here. Sources are registered in linecache, so that tracebacks and debuggers show them.
"""

import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any
from zlib import crc32

from .plan import ImagePlan, VariablePart

FindRows = Callable[[bytes, int, int, Callable[[int], None]], int]

_LENGTHS = {
    1: "1 + data[position]",
    2: "2 + data[position] + (data[position + 1] << 8)",
    3: "3 + data[position] + (data[position + 1] << 8) + (data[position + 2] << 16)",
    4: "4 + from_bytes(data[position:position + 4], 'little')",
}
# Compiled functions kept, of all streams of a process; each takes some 5 KB.
_FUNCTIONS_KEPT = 1024


@lru_cache(_FUNCTIONS_KEPT)
def row_finder(images: tuple[ImagePlan, ...]) -> FindRows:
    """A function ``(data, position, end, append) -> position`` that appends where each image of each row begins.

    It returns where the last row ends, which is ``end`` unless the rows are damaged; ``IndexError`` is damage too.
    """
    namespace: dict[str, Any] = {"from_bytes": int.from_bytes}
    lines = ["def find_rows(data, position, end, append):", "    while position < end:"]
    for image in images:
        lines += (f"        {line}" for line in _image(image, namespace))
    source = "\n".join([*lines, "    return position", ""])
    filename = f"<row finder {crc32(source.encode()):08x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)  # the text is made of our own words only
    find_rows: FindRows = namespace["find_rows"]
    return find_rows


def _image(image: ImagePlan, namespace: dict[str, Any]) -> Iterator[str]:
    yield "append(position)"
    if image.diff_bytes:
        yield f"position += {1 + image.diff_bytes} if data[position] & 1 else 1"
    for index, mask in enumerate(image.null_mask):
        place = f"position + {index}" if index else "position"
        yield f"b{index} = data[{place}]" if mask == 0xFF else f"b{index} = data[{place}] & {mask}"
    behind = len(image.null_mask)
    for part in image.parts:
        taken = []
        for index, table in part.nulls:
            name = f"t{len(namespace)}"
            namespace[name] = tuple(table.tolist())
            taken.append(f" - {name}[b{index}]")
        if behind + part.fixed_size:
            yield f"position += {behind + part.fixed_size}{''.join(taken)}"
        behind = 0
        if part.variable is not None:
            yield from _variable(part.variable)


def _variable(variable: VariablePart) -> Iterator[str]:
    yield f"if not b{variable.null_byte} & {variable.null_bit}:"
    yield f"    position += {_LENGTHS[variable.length_bytes]}"
