"""A table of ``mirror`` in Delta: the source's rows as they are now. ``kept_table`` has the common part."""

from .kept_table import KeptTable, Step


class CurrentTable(KeptTable):
    """A kept table with the present rows only. See ``KeptTable``."""

    def clear(self, micros: int, step: Step, seq: int = 0) -> None:
        """Delete all rows."""
        self.clear_out(step)
