"""The heap of Spark's Python processes, which are used again: Python looks at its objects once, not after each task.

A process of Spark collects garbage after everything that it has been asked (``pyspark/daemon.py``). Each time Python
looks at all objects of the imported modules: 110,000 with pandas, 25 to 50 ms of processor. A micro-batch asks four
processes and its merge three or more, so that this was 0.2 of the 0.45 s that a batch of 16 MB took. ``gc.freeze``
ends it. It is called right after a collection, so that nothing is kept that is garbage already.
"""

import gc
import os
from collections.abc import Mapping
from typing import Any, Final

# Spark sets this for processes that it uses again.
_REUSED: Final = "SPARK_REUSE_WORKER"
# Modules that a process imports later are frozen then, too. All that a task has at such a time is kept, so few times.
_TIMES: Final = 4


def keep_heap() -> None:
    """Freeze what outlives the first collections of this process, if it is one of Spark's."""
    if _REUSED not in os.environ:
        return
    left = _TIMES

    def freeze(phase: str, about: Mapping[str, Any]) -> None:
        nonlocal left
        if phase == "stop" and about["generation"] == 2:
            gc.freeze()
            left -= 1
            if not left:
                gc.callbacks.remove(freeze)

    gc.callbacks.append(freeze)
