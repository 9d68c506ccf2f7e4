"""What users of other programs type: each error ends with the line that works here."""

import shlex

import pytest

from gpt_oss_server.cli.line.corrections import COMMANDS as OTHERS
from gpt_oss_server.cli.line.corrections import FLAGS, corrected, expanded
from gpt_oss_server.cli.line.flags import settle_words
from gpt_oss_server.cli.parser import build_parser
from gpt_oss_server.settings import OPTIONS, Settings, read_settings

PARSER = build_parser()


def led_to(line: str) -> str | None:
    """The line that the error proposes, without the program's name."""
    error = corrected(expanded(shlex.split(line)), PARSER.subcommands)
    return None if error is None else error.rpartition("\nTry: gpt-oss-server ")[2]


def settings_of(line: str) -> Settings:
    parsed, further = PARSER.parse_known_args(shlex.split(line))
    args = vars(parsed)
    settle_words(args, further)
    return read_settings(args, {})


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        # vllm serve
        ("serve tiny --tensor-parallel-size 2 --max-model-len 4096", "serve tiny --max-model-len 4096"),
        ("serve tiny --tool-call-parser openai --enable-auto-tool-choice", "serve tiny"),
        ("serve openai/gpt-oss-20b --gpu-memory-utilization=0.9 -tp 1", "serve openai/gpt-oss-20b"),
        ("serve --dtype auto openai/gpt-oss-20b", "serve openai/gpt-oss-20b"),
        # llama-server
        ("-m gpt-oss-20b-mxfp4.gguf -ngl 99 --jinja --port 9", "serve -m openai/gpt-oss-20b --port 9"),
        ("serve -hf ggml-org/gpt-oss-20b-GGUF -fa on", "serve -hf openai/gpt-oss-20b"),
        # ollama
        ("run gpt-oss:20b", "chat openai/gpt-oss-20b"),
        ("run gpt-oss:20b 'Why is the sky blue?'", "chat openai/gpt-oss-20b 'Why is the sky blue?'"),
        ("run gpt-oss --think low", "chat openai/gpt-oss-20b --effort low"),
        ("run gpt-oss:120b --hidethinking", "chat openai/gpt-oss-120b --no-reasoning"),
        ("ls", "list"),
        ("download openai/gpt-oss-20b", "pull openai/gpt-oss-20b"),
        # slips
        ("sreve --prot 1", "serve --port 1"),
        ("openai/gpt-oss-20b", "serve openai/gpt-oss-20b"),
        ("serve --modle=tiny", "serve --model=tiny"),
        ("chat --no-reasonning", "chat --no-reasoning"),
        ("serve --xyz 3 tiny", "serve tiny"),
    ],
)
def test_the_error_leads_to_the_right_line(typed: str, right: str) -> None:
    assert led_to(typed) == right
    assert led_to(right) is None, "the proposed line needs no correction"
    PARSER.parse_args(shlex.split(right))


def test_a_line_that_works_needs_no_correction() -> None:
    lines = "serve|serve tiny --port 0|serve -mtiny|chat -bp|chat -- -tp|help serve|--version|render - --json"
    for line in (*lines.split("|"), "chat --instructions '-1 is not a flag'"):
        assert led_to(line) is None, line


CHATS = "chat tiny Hello there | chat tiny --effort low Hello there | chat --effort low -p tiny"


@pytest.mark.parametrize(
    ("name", "value", "lines"),
    [
        ("model", "openai/gpt-oss-20b", "serve openai/gpt-oss-20b"),
        ("model", "tiny", f"serve -m tiny | serve --port 1 tiny | serve tiny -m tiny | {CHATS}"),
        ("model", "random:20b", "bench random:20b"),
        ("context", 4096, "serve --max-model-len 4096 | serve -c 4096 | serve --ctx-size 4096"),
        ("max_concurrent", 3, "serve --max-num-seqs 3 | serve -np 3"),
        ("served_model_name", ("a", "b", "c"), "serve --alias a -a b --served-model-name c"),
        ("default_max_output_tokens", 5, "serve -n 5"),
        ("default_reasoning_effort", "xhigh", "serve --effort xhigh"),
        ("default_reasoning_budget", 7, "serve --reasoning-budget 7"),
        ("port", 1234, "serve -p 1234"),
    ],
)
def test_names_of_other_programs_set_the_same(name: str, value: object, lines: str) -> None:
    for line in lines.split(" | "):
        assert getattr(settings_of(line), name) == value, line


def test_no_name_means_two_things() -> None:
    known = {name for option in OPTIONS for name in (option.flag, *option.also)}
    assert not known & FLAGS.keys()
    assert not OTHERS.keys() & PARSER.subcommands.keys()
    assert set(OTHERS.values()) <= PARSER.subcommands.keys()
