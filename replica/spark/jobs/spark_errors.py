"""Errors of Spark itself, or of its machines, in one line: Java, packages, folders, settings.

An error of Spark is a long text with the stacks of Java and Python, and not a defect of this project. A Python error
of a task is a defect, unless it says what its machine lacks. The lines are for people who started a command. Only the
errors of ``spark_session.our_errors`` park a table, as a lost machine must not park it.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from typing import Final

from protocol.errors import ConfigurationError, ReplicaError

# The last line of a Python traceback, in the text of Spark's error.
_RAISED: Final = re.compile(r"^([\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_NO_MODULE: Final = re.compile(r"No module named '([^']+)'")
_OF_FOLDERS: Final = frozenset({"FileNotFoundError", "PermissionError", "OSError"})
# The system's words, in errors of Java, Python, Arrow and Delta.
_FULL: Final = re.compile("No space left on device|Disk quota exceeded")
# py4j's text begins with the name of a method, which is left out.
_OF_JAVA: Final = re.compile(r"^: (.+)$", re.MULTILINE)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of Spark that are not defects of this project as a ``ReplicaError`` of one line."""
    try:
        yield
    except ReplicaError:
        raise
    except Exception as error:
        text = _explained(error)
        if text is None:
            raise
        raise ReplicaError(text) from error


def _explained(error: Exception) -> str | None:
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    if (full := _FULL.search(f"{text}{_causes(error)}")) is not None:
        return (
            f"a disk of the job is full ({full[0]}): that of the target, the state, the spool or Spark's temporary "
            "files -- make room and start the job again, it goes on where it was"
        )
    if _TRACEBACK in text:
        raised = _RAISED.findall(text)
        return _of_a_machine(*raised[-1]) if raised else None
    found = _OF_JAVA.findall(text)
    return f"Spark: {found[0] if found else text.strip().partition(chr(10))[0]}"


def _causes(error: Exception) -> str:
    """The stacks of Java's causes: Spark's own sinks say only that a task has failed, and where it wrote."""
    cause = getattr(error, "_cause", None)
    return "" if cause is None else f"\n{getattr(cause, '_stackTrace', '')}{_causes(cause)}"


def _of_a_machine(name: str, text: str) -> str | None:
    """One line for a task's error that its machine has caused; None for other errors."""
    module = _NO_MODULE.search(text)
    if name == "ModuleNotFoundError" and module is not None:
        return (
            f"Spark's Python has no module {module[1]!r} -- install mysql-replica with its extras on each machine, "
            "for the Python of PYSPARK_PYTHON"
        )
    if name in _OF_FOLDERS:
        return (
            f"a task of Spark: {text} -- on a cluster the target, and spoolDir as a URI, must be folders that all "
            "machines see, such as s3://bucket/lake"
        )
    return None


def require_java() -> None:
    """Raises ``ConfigurationError`` if Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java") if home is None else shutil.which("java", path=os.path.join(home, "bin"))
    if program is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME, {home}"
        raise ConfigurationError(
            f"Spark needs Java 17 or later, and there is none {where} -- apt-get install openjdk-17-jre-headless"
        )
