"""Names of options in messages: the library speaks of Python's arguments, the command line has options of its own."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Final

# Arguments of `replica.connect`, and options of Spark's source, that are called otherwise on the command line.
_OTHER_NAMES: Final = {"checkpoints": "checkpoint", "include_tables": "tables", "starting_offsets": "start"}
# "exclude_tables=" and "snapshot_locking='rows'", but not the "option=value" of a DSN. A message may quote SQL.
_NAMED: Final = re.compile(
    r"(?<![\w?&.])(tables|exclude_tables|start|stop|checkpoints|server_id|tls|compression|snapshot_locking|seed|spool|state)="
    r"('[^']*')?"
)
# "tables: no table matches ...", "serverId: a whole number ..."
_SUBJECT: Final = re.compile(r"((?:error|warning): )([a-z][A-Za-z_]*)(?=: )")
_CAPITAL: Final = re.compile("[A-Z]")


def note_flags(parser: ArgumentParser) -> None:
    """Keep the options of a subcommand where ``named_as_given`` finds them; all must have been added."""
    flags = {
        action.dest: next((flag for flag in action.option_strings if flag.startswith("--")), "")
        for action in parser._actions
        if action.option_strings
    }
    parser.set_defaults(flags=flags)


def named_as_given(message: str, options: Namespace) -> str:
    """A message of the library, with the options of the command line instead of the arguments of Python."""
    flags: Mapping[str, str] = getattr(options, "flags", {})

    def subject(found: re.Match[str]) -> str:
        plain = _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", found[2])
        name = _OTHER_NAMES.get(plain, plain)
        # It may have come with the DSN instead.
        is_given = getattr(options, name, None) is not None
        return f"{found[1]}{flags[name]}" if name in flags and is_given else found[0]

    def mention(found: re.Match[str]) -> str:
        name, value = _OTHER_NAMES.get(found[1], found[1]), found[2]
        if name in flags:
            return flags[name] + (f" {value}" if value else "")
        return f"{found[1]}={value.strip(chr(39))} (behind a ? in the DSN)" if value else found[0]

    return _NAMED.sub(mention, _SUBJECT.sub(subject, message, count=1))
