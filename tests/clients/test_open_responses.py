"""The compliance suite of Open Responses, unmodified, over HTTP and WebSocket.

It needs the suite's repository and bun: docs/clients/open-responses.md has the commands, and `OPEN_RESPONSES`
names the folder. Instead of a model, an engine follows the instructions of the prompt, so that this test can
compare the texts of the answers with the requests, which the suite does not do.
"""

import json
import os
import re
import subprocess
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo, Finish, Sampling, Step
from tests.doubles.clients.running import SECONDS, call, final
from tests.doubles.serving import serving

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
