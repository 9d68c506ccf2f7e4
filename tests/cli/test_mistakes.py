"""What argparse finds wrong, as sentences."""

from __future__ import annotations

import json

import pytest

from tests.doubles.commands import run


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("store", "`store` needs ACTION (stat, vacuum, export, import or delete)."),
        ("store stats", "ACTION is stat, vacuum, export, import or delete, not 'stats'. Did you mean stat?"),
        ("export", "`export` needs FORMAT (gguf) and PATH (the file to write)."),
        ("pull", "`pull` needs MODEL (a Hugging Face repo, such as openai/gpt-oss-20b)."),
        ("serve --port", "--port needs a value."),
        (
            "chat --effort huge",
            "--effort is none, minimal, low, medium, high, xhigh or max, not 'huge'.",
        ),
        ("render --json --tokens x", "--tokens and --json exclude each other."),
    ],
)
def test_a_wrong_line_is_answered_with_a_sentence_and_the_command_to_read(line: str, sentence: str) -> None:
    done = run(*line.split())
    assert done.returncode == 2
    command = line.split()[0]
    assert done.stderr == f"{sentence} See `gpt-oss-server {command} --help`.\n"


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_of_a_command_leads_to_that_of_the_program(word: str) -> None:
    done = run("serve", word)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Try: gpt-oss-server --version")


def test_a_misspelt_flag_of_the_program_is_recognised() -> None:
    done = run("--verson")
    assert done.returncode == 2
    assert done.stderr.startswith("There is no flag --verson. Did you mean --version?")


def test_the_versions_are_printed_for_programs_too() -> None:
    found = json.loads(run("version", "--json").stdout)
    table = run("version").stdout
    assert all(name in table and version in table for name, version in found.items())
    assert {"gpt-oss-server", "python", "torch"} <= set(found)


def test_what_is_read_from_standard_input_is_named_so() -> None:
    done = run("render", "-", stdin="{")
    assert done.stderr.startswith("Standard input is not a request. The request body is not valid JSON")
