"""The settings as flags of a command, and the model as its first word. It must not know any command."""

import argparse
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpt_oss_server.settings import OPTIONS, SettingsError
from gpt_oss_server.settings.models import named
from gpt_oss_server.settings.options import Kind, Option
from gpt_oss_server.settings.sources import CONFIG, FILE, file_flag, reads_file
from inference.backends.names import meant_by, names_model

_SHOWN_ALIASES = ("-m",)
_FOR_A_PROGRAM = "--engine-args"
_PREFIX = re.compile(r"[a-z]+:")


def whole_switches(words: Sequence[str]) -> list[str]:
    """Gives each switch that may have a value the next word if that is meant as one, else `on`. What is for
    another program is a value although it looks like a flag."""
    kinds = {option.flag: option.kind for option in OPTIONS if option.kind.valued}
    whole: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*whole, word, *left]
        if word == _FOR_A_PROGRAM and left:
            word = f"{word}={left.pop(0)}"
        if word in kinds:
            has_value = bool(left) and _is_meant(left[0], kinds[word])
            word = f"{word}={left.pop(0) if has_value else 'on'}"
        whole.append(word)
    return whole


def passed_on(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of this program, and those that `launch` passes on: all after the first `--`."""
    if words[:1] != ["launch"] or "--" not in words:
        return list(words), []
    at = words.index("--")
    return list(words[:at]), list(words[at + 1 :])


def flags_in(parsed: Mapping[str, Any]) -> list[str]:
    """The settings of a command line as flags, for another command."""
    names = {option.name for option in OPTIONS}
    names |= {option.name + FILE for option in OPTIONS if reads_file(option, OPTIONS)}
    words = []
    for name, value in parsed.items():
        flag = name.replace("_", "-")
        if name not in names:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}={one}" for one in ([value] if isinstance(value, str) else value or ())]
    return words


def _is_meant(word: str, kind: Kind) -> bool:
    """Whether it is a value of this kind, or a wrong one: a prefix that no model has."""
    return kind.holds(kind.parse(word)) or (_PREFIX.match(word) is not None and not names_model(word))


def add_model(parser: argparse.ArgumentParser) -> None:
    """Lets the model be the first word, as with `vllm serve`."""
    parser.add_argument("model_word", nargs="?", metavar="MODEL", help="the same as --model")


def settle_words(parsed: dict[str, Any], further: Sequence[str] = ()) -> None:
    """Turns words into the model and the question. Raises SettingsError for too many, and for two models."""
    takes_model = "model_word" in parsed
    word = parsed.pop("model_word", None)
    rest = list(further)
    if "question" in parsed:
        words = [*parsed["question"], *rest]
        word = words.pop(0) if words and names_model(words[0]) else None
        if word is None and "model" not in parsed:
            _check_no_model_is_meant(words)
        parsed["question"], rest = words, []
    elif rest and word is None and takes_model:
        word = rest.pop(0)
    if parsed.get("command") == "serve":
        word, rest = _settle_models(parsed, word, rest)
    if rest:
        problem = f"`{parsed.get('command')}` cannot use {shlex.join(rest)}."
        raise SettingsError(f"{problem} A flag takes one value; repeat it for more.")
    if word is None:
        return
    if parsed.get("model", word) != word:
        raise SettingsError(f"Two models are named, {word} and {parsed['model']}. Leave one out.")
    parsed["model"] = word


def _settle_models(parsed: dict[str, Any], word: str | None, rest: list[str]) -> tuple[str | None, list[str]]:
    """Takes `NAME=MODEL` words out of a command line: the first word, if it is one, names the first model."""
    further = [one for one in rest if named(one)]
    if further:
        parsed["models"] = [*further, *parsed.get("models", [])]
    if word is not None and (first := named(word)):
        name, word = first
        parsed["served_model_name"] = [name, *parsed.get("served_model_name", [])]
    return word, [one for one in rest if one not in further]


def _check_no_model_is_meant(words: Sequence[str]) -> None:
    """Refuses a word alone, or before a quoted question, that is nearly a model's name."""
    if not words or len(words[0].split()) != 1 or not all(len(word.split()) > 1 for word in words[1:]):
        return
    if meant := meant_by(words[0]):
        raise SettingsError(
            f"There is no model {words[0]!r}. Did you mean {meant}? As a question, it comes from standard "
            f"input: echo {shlex.quote(words[0])} | gpt-oss-server chat -"
        )


class _OneModel(argparse.Action):
    """A second model is refused: the last one would win in silence."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, flag: Any = None
    ) -> None:
        if (first := getattr(namespace, self.dest, value)) != value:
            parser.error(f"Two models are named, {first} and {value}. Write further ones as NAME=MODEL")
        setattr(namespace, self.dest, value)


def add_flags(
    parser: argparse.ArgumentParser, only: Sequence[str] | None = None, *, everything: bool = True
) -> None:
    """Adds the settings, or only those named and --config, as flags of `parser`.

    Omitted flags set no attribute. Without `everything`, the help shows the common ones. Names from other
    programs work and are not shown.
    """
    groups: dict[str, argparse._ActionsContainer] = {}
    only = None if only is None else (*only, CONFIG)
    for option in OPTIONS:
        if only is not None and option.name not in only:
            continue
        names = (*(name for name in option.also if name in _SHOWN_ALIASES), option.flag)
        hidden = [name for name in option.also if name not in names]
        if hidden:
            _add(parser, option, hidden, argparse.SUPPRESS)
        if not (everything or option.common):
            _add(parser, option, names, argparse.SUPPRESS)
            continue
        if option.section not in groups:
            groups[option.section] = parser.add_argument_group(option.section.lower())
        help = f"{option.help} Default: {option.shown_default}.".replace("`", "").replace("%", "%%")
        _add(groups[option.section], option, names, help)
    for option in OPTIONS:
        if reads_file(option, OPTIONS) and (only is None or option.name in only):
            group = groups.get(option.section, parser) if everything else parser
            help = argparse.SUPPRESS if group is parser else f"A file that holds {option.flag}."
            group.add_argument(file_flag(option), metavar="FILE", default=argparse.SUPPRESS, help=help)


def _add(group: argparse._ActionsContainer, option: Option, names: Sequence[str], help: str) -> None:
    keywords: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": help}
    if option.kind.valued:
        group.add_argument(*names, nargs="?", const="on", metavar=option.kind.metavar, **keywords)
        hidden = keywords | {"help": argparse.SUPPRESS}
        group.add_argument(f"--no-{option.flag[2:]}", action="store_const", const="off", **hidden)
    elif option.kind.switch:
        group.add_argument(*names, action=argparse.BooleanOptionalAction, **keywords)
    else:
        action: Any = "append" if option.kind.many else _OneModel if option.name == "model" else "store"
        group.add_argument(*names, action=action, metavar=option.kind.metavar, **keywords)
