"""Print the script that lets a shell complete commands, flags and their values with the Tab key."""

import argparse
from collections.abc import Sequence

from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.line.words import CommandWords, Flag, Value, command_words
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server completion bash

Let the shell read it at each start, by a line in its file:
  ~/.bashrc                     eval "$(gpt-oss-server completion bash)"
  ~/.zshrc, after compinit      eval "$(gpt-oss-server completion zsh)"
  ~/.config/fish/config.fish    gpt-oss-server completion fish | source"""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(args: argparse.Namespace, settings: Settings) -> int:
    words = command_words(args.build_parser().subcommands, args.commands)
    console.out(SCRIPTS[args.shell](PROGRAM, words), end="")
    return 0


def bash(program: str, commands: Sequence[CommandWords]) -> str:
    function = f"_{program.replace('-', '_')}"
    cases = "\n".join(_bash_case(command) for command in commands)
    return f"""\
# Completion of {program} for bash. In ~/.bashrc: eval "$({program} completion bash)"
{function}() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local words="" files="" flags="" first="" first_files="" later="" later_files="" IFS=$' \\t\\n'
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{_names(commands)} help --help --version" -- "$current"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
        help) first="{_names(commands)}" ;;
    esac
    if [[ $current == -* ]]; then
        words="$flags"
    elif [[ -z $words$files ]]; then
        words="$later" files="$later_files"
        ((COMP_CWORD > 2)) || words="$first" files="$first_files"
    fi
    [[ $words == any ]] || COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ -n $files ]]; then
        compopt -o filenames 2> /dev/null
        IFS=$'\\n'
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}}
complete -F {function} {program}
"""


def _bash_case(command: CommandWords) -> str:
    lines = [
        f'            flags="{" ".join(name for flag in command.flags for name in flag.names)}"',
        _bash_words("first", command.first),
        _bash_words("later", command.later),
        '            case "$before" in',
        *(_bash_value(flag, flag.value) for flag in command.flags if flag.value is not None),
        "            esac",
    ]
    return "\n".join([f"        {command.name})", *lines, "            ;;"])


def _bash_words(name: str, value: Value) -> str:
    return f'            {name}="{" ".join(value.choices)}" {name}_files="{"yes" if value.files else ""}"'


def _bash_value(flag: Flag, value: Value) -> str:
    words = " ".join(value.choices) or ("" if value.files else "any")
    files = "yes" if value.files else ""
    return f'                {"|".join(flag.names)}) words="{words}" files="{files}" ;;'


def zsh(program: str, commands: Sequence[CommandWords]) -> str:
    function = f"_{program}"
    names = "\n".join(f"        '{command.name}:{command.summary}'" for command in commands)
    cases = "\n".join(_zsh_case(command) for command in commands)
    return f"""\
#compdef {program}
# Completion of {program} for zsh. In ~/.zshrc, after compinit: eval "$({program} completion zsh)"
{function}() {{
    local -a commands
    commands=(
{names}
        'help:show the help of a command'
    )
    if ((CURRENT == 2)); then
        _describe -t commands command commands
        _arguments '--help[show the help]' '--version[show the version]'
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
{cases}
        help) _describe -t commands command commands ;;
    esac
}}
compdef {function} {program}
"""


def _zsh_case(command: CommandWords) -> str:
    arguments = [line for flag in command.flags for line in _zsh_flag(flag)]
    arguments += [f"'1:word:{_zsh_action(command.first)}'", f"'*:word:{_zsh_action(command.later)}'"]
    listed = " \\\n                ".join(arguments)
    return f"        {command.name})\n            _arguments -s \\\n                {listed}\n            ;;"


def _zsh_flag(flag: Flag) -> list[str]:
    value = "" if flag.value is None else f":value:{_zsh_action(flag.value)}"
    return [f"'*{name}[{flag.help}]{value}'" for name in flag.names]


def _zsh_action(value: Value) -> str:
    choices = f"({' '.join(value.choices)})" if value.choices else ""
    if not value.files:
        return choices or " "
    return f'{{_alternative "words\\:word\\:{choices}" "files\\:file\\:_files"}}' if choices else "_files"


def fish(program: str, commands: Sequence[CommandWords]) -> str:
    lines = [
        f"# Completion of {program} for fish. In ~/.config/fish/config.fish:",
        f"#   {program} completion fish | source",
        f"complete -c {program} -f",
        f"complete -c {program} -n __fish_use_subcommand -s h -l help -d 'show the help'",
        f"complete -c {program} -n __fish_use_subcommand -s V -l version -d 'show the version'",
    ]
    for command in commands:
        alone = f"complete -c {program} -n __fish_use_subcommand"
        lines.append(f"{alone} -a {command.name} -d '{command.summary}'")
        for value, place in ((command.first, "-eq 2"), (command.later, "-gt 2")):
            condition = f"__fish_seen_subcommand_from {command.name}; and {_FISH_WORDS} {place}"
            inside = f"complete -c {program} -n '{condition}'"
            lines += [f"{inside} -a '{' '.join(value.choices)}'"] if value.choices else []
            lines += [f"{inside} -F"] if value.files else []
        lines += [_fish_flag(program, command.name, flag) for flag in command.flags]
    lines.append(f"complete -c {program} -n __fish_use_subcommand -a help -d 'show the help of a command'")
    lines.append(f"complete -c {program} -n '__fish_seen_subcommand_from help' -a '{_names(commands)}'")
    return "\n".join(lines) + "\n"


_FISH_WORDS = "test (count (commandline -opc))"


def _fish_flag(program: str, command: str, flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    value = ""
    if flag.value is not None:
        words = f" -a '{' '.join(flag.value.choices)}'" if flag.value.choices else ""
        value = f" {'-r -F' if flag.value.files else '-x'}{words}"
    return f"complete -c {program} -n '__fish_seen_subcommand_from {command}' {names}{value} -d '{flag.help}'"


def _names(commands: Sequence[CommandWords]) -> str:
    return " ".join(command.name for command in commands)


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
