"""``mysql-replica completion SHELL``: prints a script that completes the command line in bash, zsh or fish.

The script is made from the argument parsers and is complete in itself: pressing Tab starts no Python.
"""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from protocol.records import record

from .command import Command
from .console import PROGRAM, Console

# What completes an argument, by the words in its metavar.
_FILES: Final = ("FILE", "DIR")


@record(frozen=True, slots=True)
class _Argument:
    """An option, or a positional argument without ``flags``: what may follow it. ``help`` is one line."""

    flags: tuple[str, ...]
    help: str
    has_value: bool
    choices: tuple[str, ...]
    is_file: bool


@record(frozen=True, slots=True)
class _Subcommand:
    """A subcommand with all its arguments, those of its own subcommands included."""

    name: str
    help: str
    arguments: tuple[_Argument, ...]

    @property
    def options(self) -> list[_Argument]:
        return [argument for argument in self.arguments if argument.flags]

    @property
    def flags(self) -> str:
        return " ".join(flag for option in self.options for flag in option.flags)

    @property
    def words(self) -> list[str]:
        """The words that a positional argument may be."""
        return [word for argument in self.arguments if not argument.flags for word in argument.choices]

    @property
    def takes_files(self) -> bool:
        return any(argument.is_file for argument in self.arguments if not argument.flags)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh or fish")


_EPILOG: Final = f"""\
Put this line into the file that the shell reads at its start:
  bash   ~/.bashrc                    source <({PROGRAM} completion bash)
  zsh    ~/.zshrc, after compinit     source <({PROGRAM} completion zsh)
  fish   ~/.config/fish/config.fish   {PROGRAM} completion fish | source"""


def _run(options: Namespace, console: Console) -> int:
    script = _SHELLS[options.shell](_read(options.parser))
    console.output.write(script.encode())
    return 0


# Reading the parsers


def _read(parser: ArgumentParser) -> list[_Subcommand]:
    [subparsers] = [action for action in parser._actions if isinstance(action.choices, dict)]
    helps = {action.dest: action.help or "" for action in subparsers._get_subactions()}  # type: ignore[attr-defined]
    return [
        _Subcommand(name, helps[name], tuple(_arguments(subparser)))
        for name, subparser in _nested(subparsers).items()
    ]


def _nested(action: Action) -> Mapping[str, ArgumentParser]:
    return action.choices if isinstance(action.choices, dict) else {}


def _arguments(parser: ArgumentParser) -> Iterator[_Argument]:
    known: set[str] = set()
    for action in parser._actions:
        if _nested(action):
            yield _Argument((), "", True, tuple(_nested(action)), False)
    for one in _parsers(parser):
        for action in one._actions:
            if _nested(action) or known.intersection(action.option_strings):
                continue
            known.update(action.option_strings)
            metavar = str(action.metavar or "")
            yield _Argument(
                tuple(action.option_strings),
                (action.help or "").partition(";")[0] % {"default": action.default},
                action.nargs != 0,
                tuple(action.choices or ()),
                any(word in metavar for word in _FILES),
            )


def _parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        for subparser in _nested(action).values():
            yield from _parsers(subparser)


# One writer for each shell


def _bash(commands: list[_Subcommand]) -> str:
    names = " ".join(command.name for command in commands)
    lines = [
        "_mysql_replica() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} IFS=$' \\t\\n'",
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{names} --help --version" -- "$cur")); return',
        "    fi",
        '    case "${COMP_WORDS[1]}:$prev" in',
    ]
    for command in commands:
        for option in command.options:
            if option.has_value:
                patterns = "|".join(f"{command.name}:{flag}" for flag in option.flags)
                lines.append(f"        {patterns}) {_bash_values(option.choices, option.is_file)}; return;;")
    lines += ["    esac", '    case "${COMP_WORDS[1]}:$cur" in']
    for command in commands:
        lines.append(f'        {command.name}:-*) COMPREPLY=($(compgen -W "{command.flags}" -- "$cur"));;')
        lines.append(f"        {command.name}:*) {_bash_values(command.words, command.takes_files)};;")
    lines += ["    esac", "}", f"complete -o filenames -F _mysql_replica {PROGRAM}", ""]
    return "\n".join(lines)


def _bash_values(choices: tuple[str, ...] | list[str], is_file: bool) -> str:
    if choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$cur"))'
    return "IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$cur\"))" if is_file else ":"


def _zsh(commands: list[_Subcommand]) -> str:
    lines = ["#compdef mysql-replica", "_mysql_replica() {", "    local -a commands=("]
    lines += [f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands; compadd -- --help --version; return",
        "    fi",
        "    local command=$words[2]",
        "    shift words; (( CURRENT-- ))",
        "    case $command in",
    ]
    for command in commands:
        specs = [_quoted(spec) for option in command.options for spec in _zsh_option(option)]
        value = _zsh_value(tuple(command.words), command.takes_files)
        lines.append(
            f"        {command.name}) _arguments {' '.join([*specs, _quoted('*:argument' + value)])};;"
        )
    lines += ["    esac", "}", f"compdef _mysql_replica {PROGRAM}", ""]
    return "\n".join(lines)


def _zsh_option(option: _Argument) -> Iterator[str]:
    text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
    for flag in option.flags:
        yield f"*{flag}[{text}]" + (":value" + _zsh_value(option.choices, option.is_file)) * option.has_value


def _zsh_value(choices: tuple[str, ...], is_file: bool) -> str:
    return f":({' '.join(choices)})" if choices else ":_files" if is_file else ": "


def _fish(commands: list[_Subcommand]) -> str:
    names = " ".join(command.name for command in commands)
    first = f"'not __fish_seen_subcommand_from {names}'"
    lines = [f"complete -c {PROGRAM} -f", f"complete -c {PROGRAM} -n {first} -l version -l help"]
    for command in commands:
        lines.append(f"complete -c {PROGRAM} -n {first} -a {command.name} -d {_quoted(command.help)}")
        seen = f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{seen} -a {_quoted(' '.join(command.words))}")
        if command.takes_files:
            lines.append(f"{seen} -F")
        lines += [f"{seen} {_fish_option(option)}" for option in command.options]
    return "\n".join([*lines, ""])


def _fish_option(option: _Argument) -> str:
    words = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    if option.choices:
        words.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.has_value:
        words.append("-r -F" if option.is_file else "-x")
    return " ".join([*words, f"-d {_quoted(option.help)}"])


def _quoted(text: str) -> str:
    """A text in single quotes, in a form that all three shells read alike."""
    return "'" + text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}") + "'"


_SHELLS: Final[Mapping[str, Callable[[list[_Subcommand]], str]]] = MappingProxyType(
    {"bash": _bash, "zsh": _zsh, "fish": _fish}
)

COMMAND: Final = Command(
    "completion", "Print a script that completes commands in bash, zsh or fish", _add_arguments, _run, _EPILOG
)
