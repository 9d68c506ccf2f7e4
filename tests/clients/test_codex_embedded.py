"""The unmodified Codex CLI with the embedded model: no script, and no turn that only reaches its limit.

The model runs in the built-in engine (`make clients`), or in engines of other programs (`make engines`).
The compliance suite of Open Responses, unmodified, over HTTP and WebSocket.

It needs the suite's repository and bun: docs/clients/open-responses.md has the commands, and `OPEN_RESPONSES`
names the folder. Instead of a model, an engine follows the instructions of the prompt, so that this test can
compare the texts of the answers with the requests, which the suite does not do.
"""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo, Finish, Sampling, Step
from tests.clients.test_codex import Codex
from tests.doubles.clients.running import SECONDS, Recorder, call, final, recorded, run
from tests.doubles.engines.live import KINDS, live_engine
from tests.doubles.serving import serving

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


pytestmark = pytest.mark.clients

ANSWERS = {  # the model's answer if the user's last message contains the key
    "from 1 to 5": "1 2 3 4 5",
    "from 1 to 3": "1 2 3",
    "What is my name": "Alice",
    "in this image": "I cannot see it.",
}
EXPECTED = {  # the last text or error code, by the name of the suite's test
    "streaming-response": "1 2 3 4 5",
    "websocket-response": "1 2 3",
    "websocket-sequential-responses": "second",
    "websocket-continuation": "cobalt",
    "websocket-failed-continuation-evicts-cache": "previous_response_not_found",
    "websocket-reconnect-store-false-recovery": "recovered",
    "websocket-compact-new-chain": "compacted",
    "tool-calling": '{"location": "San Francisco, CA"}',
    "image-input": "I cannot see it.",
    "multi-turn": "Alice",
}


class Obedient:
    """Calls the declared function if the prompt has one; otherwise follows the last message."""

    info = EngineInfo(name="obedient", context_length=131_072)

    def __init__(self) -> None:
        self._encoding = load_encoding()

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        prompt = self._encoding.decode(tokens)
        text = final(_answer(prompt))
        if "type get_weather = " in prompt:
            text = call("get_weather", {"location": "San Francisco, CA"})
        for token in self._encoding.encode_special(text):
            yield Step((token,))
        yield Step((), Finish.STOP)

    async def close(self) -> None:
        pass


def _answer(prompt: str) -> str:
    question = prompt.rpartition("<|start|>user<|message|>")[2]
    if exactly := re.search(r"exactly: (\w+)", question):
        return exactly[1]
    code_word = re.search(r"Remember the code word: (\w+)", prompt)
    if code_word and "What is the code word?" in question:
        return code_word[1]
    return next((text for words, text in ANSWERS.items() if words in question), "OK")


def _last_text(response: Any) -> str | None:
    """The last text of the last response, or its error code."""
    if isinstance(response, list):
        return _last_text(response[-1])
    response = response.get("websocket", response)
    if response.get("error"):
        return str(response["error"]["code"])
    item = response["output"][-1]
    text = item["arguments"] if item["type"] == "function_call" else item["content"][-1]["text"]
    return str(text)


def _results(suite: Path, url: str) -> dict[str, Any]:
    bun = suite.parent / "node_modules" / ".bin" / "bun"
    arguments = ["--base-url", url, "--api-key", "any", "--model", "obedient", "--json"]
    command: list[Any] = [bun, "run", "bin/compliance-test.ts", *arguments]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=suite, timeout=SECONDS, **options)
    assert done.stdout.startswith("{"), f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    results = json.loads(done.stdout)["results"]
    return {result["id"]: result for result in results}


def test_the_compliance_suite_passes_and_the_answers_match_the_requests() -> None:
    folder = os.environ.get("OPEN_RESPONSES")
    if folder is None:
        pytest.skip("OPEN_RESPONSES does not name the suite's folder: docs/clients/open-responses.md")
    with serving(Obedient(), Settings(event_names="open-responses")) as url:
        results = _results(Path(folder), url)
    failed = {name: each["errors"] for name, each in results.items() if each["status"] != "passed"}
    assert failed == {}
    assert {name: _last_text(results[name]["response"]) for name in EXPECTED} == EXPECTED
