"""Unmodified clients of the Messages API: Anthropic's own, and providers of frameworks."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.messages_asking import HI, THINKING, TOOL
from tests.doubles.clients.running import (
    HELLO,
    PLACE,
    SCRIPTS,
    SUNNY,
    WEATHER,
    call,
    final,
    recorded,
    run_code,
    run_with,
)
from tests.doubles.conversations import encoded, mutated
from tests.doubles.harmony.shapes import SHAPES
from tests.doubles.serving import scripted

pytestmark = pytest.mark.clients

SENTENCE = "It is sunny in Paris."
DONE = final("I did it.")
CALLED = ["thinking", "tool_use", "redacted_thinking"]
SAME: dict[str, Any] = {
    "created": [CALLED] * 2,
    "streamed": [[CALLED, True, "tool_use"]] * 2,
    "parsed": "Paris",
    "run": SENTENCE,
}


def test_the_official_sdk_for_python(tmp_path: Path) -> None:
    later = [HELLO, call("get_weather_later", {"city": "Paris"}), SUNNY]
    results, _ = run_with("anthropic_python.py", [WEATHER, SUNNY, *[WEATHER] * 4, PLACE, *later], tmp_path)
    assert results == {**SAME, "later": ["Hello!", ["thinking", "text"], SENTENCE]}


def test_the_official_sdk_for_javascript(tmp_path: Path) -> None:
    results, _ = run_with("anthropic_js.mjs", [*[WEATHER] * 4, PLACE, WEATHER, SUNNY], tmp_path)
    assert results == SAME


def together(client: Anthropic) -> list[Any]:
    """What anthropic_corpus.mjs reports of a message, too."""
    tool: Any = {"name": "f", "input_schema": TOOL["input_schema"]}
    asked: Any = {"messages": HI["messages"], "model": "scripted", "max_tokens": 1000, "tools": [tool]}
    try:
        with client.beta.messages.stream(**asked, **THINKING) as stream:
            message = stream.get_final_message()
    except APIStatusError as error:
        return [error.body["error"]["message"]]  # type: ignore[index, call-overload]
    blocks = [block.model_dump() for block in message.content]
    shown = [[block.get(key) for key in ("type", "text", "thinking", "name", "input")] for block in blocks]
    return [message.stop_reason, message.usage.output_tokens, shown]


def test_both_sdks_put_the_same_messages_together(encoding: Encoding, tmp_path: Path) -> None:
    """Of every slip, whole and cut, and of random completions."""
    rng = random.Random(63)
    turns = [encoding.encode_special(shape.completion) for shape in SHAPES]
    turns += [tokens[: rng.randrange(1, len(tokens) + 1)] for tokens in turns if tokens]
    turns += [mutated(encoded(encoding, rng), rng) for _ in range(30)]
    script = [{"tokens": tokens} for tokens in turns]
    with recorded(scripted(*script)) as (url, _):
        client = Anthropic(base_url=url.removesuffix("/v1"), api_key="any", max_retries=0)
        in_python = [together(client) for _ in turns]
    with recorded(scripted(*script)) as (url, _):
        code = (SCRIPTS / "anthropic_corpus.mjs").read_text(encoding="utf-8")
        shown = run_code("corpus.mjs", code, tmp_path, BASE_URL=url, TURNS=str(len(turns)))
    assert json.loads(shown)["messages"] == in_python
    assert len(turns) > 200


def test_the_claude_agent_sdk(tmp_path: Path) -> None:
    """A tool of the program itself, found by the client's own search, and a call that it refuses."""
    name = "mcp__local__get_weather"
    found = [call("ToolSearch", {"query": f"select:{name}"}), call(name, {"city": "Paris"}), SUNNY]
    refused = [call("Write", {"file_path": str(tmp_path / "made.txt"), "content": "x"}), DONE]
    results, recorder = run_with("claude_agent_client.py", [*found, *refused, HELLO], tmp_path)
    assert results == {"answers": [SENTENCE, "I did it.", "Hello!"], "thoughts": ["Let me think."]}
    history = str(recorder.of("/v1/messages")[-2].body["messages"])
    assert "sunny in Paris" in history
    assert "Write is not for you" in history
