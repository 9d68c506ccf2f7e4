"""Commands for the shell: what conversations ask for, and what practising them leaves out."""

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
    """What the user said before each command, and the command."""
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
def test_commands_do_what_was_asked_for(tmp_path: Path, held_out: bool) -> None:
    """Run by a real shell: each file that was to be written says what the user wanted it to say."""
    written = 0
    for seed in range(80):
        for asked, command in commands(talk_of(seed, held_out, 4)):
            said, _, file = command.removeprefix("echo ").partition(" > ")
            if not command.startswith("echo ") or not file or "/" in file:
                continue
            subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=20)
            text = (tmp_path / file).read_text().removesuffix("\n")
            assert text == said.strip("'")
            assert text in asked
            assert file in asked
            written += 1
    assert written > 10


def test_what_runs_commands_is_declared_under_many_names() -> None:
    names = set()
    for seed in range(40):
        for tool in talk_of(seed).tools:
            names.add(tool.name)
    assert {"exec_command", "bash"} & names
    assert len(names) > 60


def test_nothing_of_the_rules_is_practised() -> None:
    talk = next(talk for seed in range(99) if (talk := talk_of(seed, rounds=6)).rules_end > 1500)
    batch = packed([talk], np.arange(1000), np.random.default_rng(1), 1.0)
    assert batch.columns.min() + 1 >= talk.rules_end
