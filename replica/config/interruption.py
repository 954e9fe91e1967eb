"""The error of reading on where an exception has broken reading off.

A generator that has raised is at its end. After Ctrl-C in a notebook, an exception of a signal handler or a
``MemoryError``, iterating again would seem to come to the end of the log.
"""


def interrupted(kind: str) -> RuntimeError:
    """The error of each later call; ``kind`` names the exception."""
    return RuntimeError(f"reading was interrupted by {kind}, and cannot go on from there: open the log again")
