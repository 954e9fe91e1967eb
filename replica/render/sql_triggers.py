"""Triggers in SQL that repeats a log: the log has the rows that they changed, so that none may run again.

A CREATE TRIGGER becomes a comment. A DROP TRIGGER may then be about a trigger that the target lacks.
"""

import re
from typing import Final

from ..sql.statement_kind import statement_name

#: A line at the beginning of the output.
TRIGGERS: Final = (
    "-- Triggers of the target would run again, and the log has the rows that they change: drop them first.\n"
)
_CREATE: Final = "CREATE TRIGGER"
_DROP: Final = "DROP TRIGGER"
_WITHOUT_CONDITION: Final = re.compile(r"\bTRIGGER\b(?!\s+IF\s+EXISTS\b)", re.IGNORECASE)


def without_triggers(sql: str) -> tuple[str, bool]:
    """What to write for a statement of the log, and whether it is a comment."""
    name = statement_name(sql) if "trigger" in sql.lower() else ""
    if name == _CREATE:
        lines = "".join(f"-- {line}\n" for line in sql.splitlines())
        return f"-- left out, because the log has the rows that this trigger changed:\n{lines}", True
    return _WITHOUT_CONDITION.sub("TRIGGER IF EXISTS", sql, count=1) if name == _DROP else sql, False
