"""The Python of Spark's own processes.

Spark puts its zip files in front of Python's path, from which Python compiles PySpark anew in each process, which
takes twice the time of importing the installed one. Spark gives a source's process ten seconds to start, which a busy
machine may need (``PythonWorkerFactory``; no setting changes it).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.places import ROOT

_TRIES = 5
# What a start fails with if a process is too slow to start, or one of the start before too slow to end.
_TOO_SLOW = ("failed to connect back", "another query uses this folder")


def spark_python(folder: Path) -> str:
    """``PYSPARK_PYTHON``: a script in ``folder`` that runs this Python without Spark's zip files.

    It imports from the tree of these tests, which need not be the installed one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "python"
    path, python = shlex.quote(str(ROOT)), shlex.quote(sys.executable)
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {python} "$@"\n')
    script.chmod(0o755)
    return str(script)


def retried(run: Callable[[], object]) -> None:
    """Run it; and again, up to four times, if a process of Spark took longer to start than Spark waits, or to end."""
    for tries in range(_TRIES):
        try:
            run()
            return
        except Exception as error:
            if tries == _TRIES - 1 or not any(text in str(error) for text in _TOO_SLOW):
                raise
