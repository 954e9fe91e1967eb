"""A compiler of row readers that only count rows, for decoders with ``row_values=False``.

No column is wanted, so a reader only follows lengths and NULL bits to the end of the event. Damage is found as usual:
the rows have to end where their event ends.
"""

from ..records import replace
from .compiler import Image, RowCompiler, RowReader


class RowCountCompiler(RowCompiler):
    """Compiles readers that return an empty tuple for each row, or a pair of empty tuples for an update.

    A row of 19 columns takes 0.6 us instead of 3.
    """

    is_counting = True

    def reader(self, *images: Image) -> RowReader:
        return super().reader(*(replace(image, wanted=()) for image in images))


def row_compiler(row_values: bool) -> RowCompiler | None:
    """The decoder's ``row_compiler`` for the option ``row_values``; None stands for the decoder's default."""
    return None if row_values else RowCountCompiler()
