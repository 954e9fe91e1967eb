"""The heap of Spark's Python processes, which are used again: garbage collection skips what imported modules hold.

A process of Spark collects garbage after each task (``pyspark/daemon.py``). Each time Python looks at all objects of
the imported modules: 110,000 with pandas, 25 to 50 ms of processor. A micro-batch asks four processes and its merge
three or more, so that this was 0.2 of the 0.45 s that a batch of 16 MB took. ``gc.freeze`` ends it. It is called
right after a collection, so that no garbage is kept.
"""

import gc
import os
from collections.abc import Mapping
from typing import Any, Final

# Spark sets this for processes that it uses again.
_REUSED: Final = "SPARK_REUSE_WORKER"
# Freezing again covers modules imported later. It also keeps all that a task holds at that time, so: few times.
_TIMES: Final = 4


def keep_heap() -> None:
    """Freeze what outlives the first garbage collections of this process, if Spark uses the process again."""
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
