"""What the doctor reports: one finding per check, with the commands to type if something is wrong."""

from collections.abc import Sequence
from typing import Literal

from protocol.records import record

from ..sql.quoting import first_names

#: ``failure``: a stream cannot start, or its first rows end it. ``warning``: data is lost, or the stream fails later.
State = Literal["ok", "warning", "failure"]
#: Where a remedy is typed: as SQL by an administrator of the source; as a line to add to section [mysqld] of its
#: option file, or to remove from it, before a restart; as an option of ``replica.connect`` or the DSN; in a shell.
Where = Literal["sql", "option file", "out of option file", "stream option", "shell"]


@record(frozen=True, slots=True)
class Remedy:
    """One line, to be typed as it is, and where to type it."""

    where: Where
    text: str


@record(frozen=True, slots=True)
class Finding:
    """The result of one check. ``remedies`` are applied in order; there are none if the state is ok."""

    check: str
    state: State
    message: str
    remedies: tuple[Remedy, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The finding as a dict for ``json.dumps``."""
        remedies = [{"where": remedy.where, "text": remedy.text} for remedy in self.remedies]
        return {"check": self.check, "state": self.state, "message": self.message, "remedies": remedies}


def sql(*statements: str) -> tuple[Remedy, ...]:
    """Statements for an administrator of the source."""
    return tuple(Remedy("sql", f"{statement};") for statement in statements)


def option_file(*lines: str) -> tuple[Remedy, ...]:
    """Lines to add to the source's option file, before a restart."""
    return tuple(Remedy("option file", line) for line in lines)


def stream_option(*options: str) -> tuple[Remedy, ...]:
    """Options of the stream."""
    return tuple(Remedy("stream option", option) for option in options)


def shell(*commands: str) -> tuple[Remedy, ...]:
    """Commands of a shell."""
    return tuple(Remedy("shell", command) for command in commands)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are, for a message."""
    return first_names(names).replace("`", "")
