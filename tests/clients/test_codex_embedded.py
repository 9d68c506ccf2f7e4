"""The unmodified Codex CLI with the embedded model: no script, and no turn that only reaches its limit.

The model runs in the built-in engine (`make clients`), or in engines of other programs (`make engines`).
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings
from tests.clients.test_codex import Codex
from tests.doubles.clients.running import Recorder, recorded, run
from tests.doubles.engines.live import KINDS, live_engine

PROMPTS = (
    "Make a file made.txt that says hello",
    "What is 2 + 2?",
    "List the files in this folder",
    "Explain this project",
)
LIMIT = 256  # tokens that one cycle may fill until the turn ends
REPETITION = 2 * LIMIT
CONTEXT = 16_384  # Codex sends thousands of tokens of instructions
SAME_CALLS = 8  # how often a whole session of Codex may make the same call


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("tiny", marks=pytest.mark.clients),
        *(pytest.param(kind, marks=pytest.mark.engines) for kind in KINDS),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Recorder]]:
    scratch = tmp_path_factory.mktemp("model")
    with live_engine(request.param, scratch, context=CONTEXT, slots=2) as model:
        settings = Settings(model=model, served_model_name=("scripted",), repetition_limit=LIMIT)
        with recorded(inference.load(model), settings) as running:
            yield running


def texts_of(response: dict[str, Any]) -> Iterator[str]:
    for item in response["output"]:
        yield item.get("arguments") or item.get("input") or ""
        yield from (part["text"] for part in item.get("content") or ())


def cycle_at_the_end(tokens: list[int]) -> int:
    """How many tokens the last cycle of a text fills, if it runs at least twice."""
    longest = 0
    for period in range(1, len(tokens) // 2 + 1):
        length = period
        while length < len(tokens) and tokens[-length - 1] == tokens[period - length - 1]:
            length += 1
        longest = max(longest, length if length >= 2 * period else 0)
    return longest


@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_turn_ends(prompt: str, server: tuple[str, Recorder], tmp_path: Path) -> None:
    url, recorder = server
    recorder.exchanges.clear()
    codex = Codex(tmp_path, url)
    done = run(codex.arguments(prompt), codex.project, env=codex.env, may_fail=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["type"] in ("turn.completed", "turn.failed"), done.stderr[-2000:]
    recorder.check()
    calls: Counter[tuple[str, str]] = Counter()
    for exchange in recorder.of("/v1/responses"):
        response = exchange.events[-1]["response"]
        for text in texts_of(response):
            assert cycle_at_the_end(load_encoding().encode(text)) <= REPETITION
        output = response["output"]
        made = Counter((i["name"], i["arguments"]) for i in output if i["type"] == "function_call")
        assert all(count == 1 for count in made.values()), "one answer repeats a call"
        calls += made
    assert all(count <= SAME_CALLS for count in calls.values()), calls
