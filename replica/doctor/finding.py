"""What the doctor says: one finding for each thing that was looked at, with what to type where something is wrong."""

from collections.abc import Sequence
from typing import Final, Literal

from protocol.records import record

#: ``failure``: no stream can start, or its first rows end it. ``warning``: something is lost, or fails later.
State = Literal["ok", "warning", "failure"]
#: Where a remedy is typed: as an administrator on the source; in the section [mysqld] of its option file, or taken
#: out of there, with a restart behind it; as an option of ``replica.connect`` or the DSN's query; in a shell.
Where = Literal["sql", "option file", "out of option file", "stream option", "shell"]

_LISTED: Final = 5


@record(frozen=True, slots=True)
class Remedy:
    """One line to type, literally, and where."""

    where: Where
    text: str


@record(frozen=True, slots=True)
class Finding:
    """The outcome of one check; ``remedies`` are to be done in order, and are empty where all is well."""

    check: str
    state: State
    message: str
    remedies: tuple[Remedy, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        remedies = [{"where": remedy.where, "text": remedy.text} for remedy in self.remedies]
        return {"check": self.check, "state": self.state, "message": self.message, "remedies": remedies}


def sql(*statements: str) -> tuple[Remedy, ...]:
    """Statements for an administrator of the source."""
    return tuple(Remedy("sql", f"{statement};") for statement in statements)


def option_file(*lines: str) -> tuple[Remedy, ...]:
    """Lines for the source's option file; it is to be restarted."""
    return tuple(Remedy("option file", line) for line in lines)


def stream_option(*options: str) -> tuple[Remedy, ...]:
    """Options of the stream."""
    return tuple(Remedy("stream option", option) for option in options)


def shell(*commands: str) -> tuple[Remedy, ...]:
    """Commands of a shell."""
    return tuple(Remedy("shell", command) for command in commands)


def listed(names: Sequence[str]) -> str:
    """The first few, for a message."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]).replace("`", "") + more
