"""Print the script that lets a shell complete commands, flags and their values with the Tab key."""

import argparse
import re
from collections.abc import Iterator, Mapping

from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server completion bash

Let the shell read it at each start, by a line in its file:
  ~/.bashrc                     eval "$(gpt-oss-server completion bash)"
  ~/.zshrc, after compinit      eval "$(gpt-oss-server completion zsh)"
  ~/.config/fish/config.fish    gpt-oss-server completion fish | source"""

ASKS = "_GPT_OSS_SERVER_COMPLETE"  # the variable by which a script asks what can follow
_MODELS = ("tiny", "openai/gpt-oss-20b", "openai/gpt-oss-120b")
_FILES = re.compile(r"\b(FILE|PATH|FOLDER|DIR|PLACE)\b")
_CHOICES = re.compile(r"[a-z0-9-]+(\|[a-z0-9-]+)+")
Parsers = Mapping[str, argparse.ArgumentParser]


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(args: argparse.Namespace, settings: Settings) -> int:
    console.out(_completion(args.shell).source(), end="")
    return 0


def answer(asked: str, parsers: Parsers, summaries: Mapping[str, str]) -> int:
    """What a script asks, as `bash_complete`; its words are in the environment."""
    completion = _completion(asked.partition("_")[0])
    words, last = completion.get_completion_args()
    for item in following(words, last, parsers, summaries):
        console.out(completion.format_completion(item))
    return 0


def _completion(shell: str) -> ShellComplete:
    made = get_completion_class(shell)
    assert made is not None, "a script names its shell"
    return made(None, {}, PROGRAM, ASKS)  # type: ignore[arg-type]  # a command of click, where this has argparse's


def following(
    words: list[str], last: str, parsers: Parsers, summaries: Mapping[str, str]
) -> Iterator[CompletionItem[str]]:
    """What can stand after these words, and begins with `last`."""
    if not words or words == ["help"]:
        flags = {"help": "show a command's help", "--help": "show the help", "--version": "show the version"}
        for name, about in (summaries if words else {**summaries, **flags}).items():
            if name.startswith(last):
                yield CompletionItem(name, help=about)
    elif (parser := parsers.get(words[0])) is not None:
        flag = parser._option_string_actions.get(words[-1])
        places = [action for action in parser._actions if not action.option_strings]
        if last.startswith("-"):
            yield from _flags(parser, last)
        elif flag is not None and flag.nargs != 0:
            yield from _values(flag, last)
        elif places and (len(words) == 1 or len(places) > 1):
            yield from _values(places[0 if len(words) == 1 else -1], last)


def _flags(parser: argparse.ArgumentParser, last: str) -> Iterator[CompletionItem[str]]:
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            about = re.split(r"(?<=\w)[.;:] ", action.help or "", maxsplit=1)[0]
            for name in action.option_strings:
                if name.startswith(last):
                    yield CompletionItem(name, help=about.replace("%%", "%").rstrip("."))


def _values(action: argparse.Action, last: str) -> Iterator[CompletionItem[str]]:
    shown = action.metavar if isinstance(action.metavar, str) else ""
    names_model = action.dest in ("model", "model_word", "question")
    choices = _MODELS if names_model else shown.split("|") if _CHOICES.fullmatch(shown) else ()
    fits = [str(choice) for choice in action.choices or choices if str(choice).startswith(last)]
    yield from map(CompletionItem, fits)
    if not fits and (names_model or _FILES.search(shown)):
        yield CompletionItem(last, "file")
