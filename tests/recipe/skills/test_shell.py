"""Commands for the shell: what conversations request, and what is not practised."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from recipe.evaluation.outcome import outcome
from recipe.skills.shell import shell_talk
from recipe.text.talk import Talk
from recipe.text.words import Words
from recipe.training.batches import packed

decode = load_encoding().decode


def talk_of(seed: int, held_out: bool = False, rounds: int = 1) -> Talk:
    rng = Random(f"shell/{seed}")
    return shell_talk(rng, Words(rng, held_out), held_out, rounds)


def commands(talk: Talk) -> list[tuple[str, str]]:
    """The user's message before each command, and the command."""
    found = []
    for turn in talk.turns:
        if turn.kind == "shell":
            prompt = decode(talk.tokens[: turn.start])
            made = outcome(talk.tokens[turn.start : turn.end], prompt)
            assert made is not None
            [command] = made.arguments.values()
            found.append((prompt.rpartition("<|start|>user<|message|>")[2].partition("<|end|>")[0], command))
    return found


@pytest.mark.parametrize("held_out", [False, True])
def test_commands_do_what_the_user_requests(tmp_path: Path, held_out: bool) -> None:
    """In a real shell, each written file has the text that the user wanted."""
    written = 0
    for seed in range(40):
        for request, command in commands(talk_of(seed, held_out, 4)):
            quoted, _, file = command.removeprefix("echo ").partition(" > ")
            if not command.startswith("echo ") or not file or "/" in file:
                continue
            subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=20)
            text = (tmp_path / file).read_text().removesuffix("\n")
            assert text == quoted.strip("'")
            assert text in request
            assert file in request
            written += 1
    assert written > 10


def test_the_command_runner_has_many_names() -> None:
    names = set()
    for seed in range(40):
        for tool in talk_of(seed).tools:
            names.add(tool.name)
    assert {"exec_command", "bash"} & names
    assert len(names) > 60


def test_the_rules_are_not_practised() -> None:
    talk = next(talk for seed in range(99) if (talk := talk_of(seed, rounds=6)).rules_end > 1500)
    batch = packed([talk], np.arange(1000), np.random.default_rng(1), 1.0)
    assert batch.columns.min() + 1 >= talk.rules_end
