"""Unmodified libraries and frameworks: each runs its own script, some in environments of their own."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.messages_asking import HI, THINKING, TOOL
from tests.doubles.clients.running import (
    HELLO,
    PLACE,
    SCRIPTS,
    SUNNY,
    WEATHER,
    Recorder,
    call,
    final,
    recorded,
    run_code,
    run_with,
)
from tests.doubles.conversations import encoded, mutated
from tests.doubles.harmony.shapes import SHAPES
from tests.doubles.pages.blocks import ADDRESS, Block, blocks
from tests.doubles.serving import scripted
from tests.tools.python.conftest import needs_bubblewrap

pytestmark = pytest.mark.clients
SENTENCE = "It is sunny in Paris."
WITH_STREAM = [WEATHER, SUNNY, WEATHER, SUNNY]


def test_the_official_sdk_for_python(tmp_path: Path) -> None:
    turns = [WEATHER, SUNNY, HELLO, PLACE, HELLO, PLACE, HELLO]
    results, _ = run_with("openai_python.py", turns, tmp_path)
    assert results == {
        "call": ["get_weather", {"city": "Paris"}],
        "answer": SENTENCE,
        "retrieved": SENTENCE,
        "streamed": ["Hello!", "Hello!"],
        "parsed": "Paris",
        "chat": "Hello!",
        "typed": "Paris",
        "socket": "Hello!",
    }


def test_the_official_sdk_for_javascript(tmp_path: Path) -> None:
    results, _ = run_with("openai_js.mjs", [WEATHER, SUNNY, HELLO, PLACE, WEATHER, SUNNY, HELLO], tmp_path)
    assert results == {
        "call": ["get_weather", {"city": "Paris"}],
        "answer": SENTENCE,
        "streamed": ["Hello!", "Hello!"],
        "parsed": {"city": "Paris"},
        "chat": SENTENCE,
        "socket": "Hello!",
    }


def test_the_vercel_ai_sdk(tmp_path: Path) -> None:
    called = [*WITH_STREAM, call("json", {"city": "Paris"})]  # this provider's form of a typed answer
    results, recorder = run_with("ai_sdk.mjs", [*[*WITH_STREAM, PLACE] * 3, *called], tmp_path)
    for name in ("responses", "chat", "compatible", "messages"):
        assert results[name] == {
            "text": SENTENCE,
            "steps": 2,
            "results": ["sunny in Paris"],
            "streamed": SENTENCE,
            # Responses: it shows only summaries, and only on request. Chat: this provider shows none.
            "reasoning": "Let me think." * 2 if name == "compatible" else "",
            "finish": "stop",
            "object": {"city": "Paris"},
            "tokens": True,
        }
    kinds = {item.get("type") for item in recorder.of("/v1/responses")[1].body["input"]}
    assert "item_reference" in kinds, "the SDK must send stored items by id"


def test_the_agents_sdk_for_javascript(tmp_path: Path) -> None:
    handoff = call("transfer_to_Expert", {})
    results, _ = run_with("agents_js.mjs", [WEATHER, SUNNY, WEATHER, SUNNY, handoff, HELLO] * 2, tmp_path)
    same = {"whole": SENTENCE, "streamed": SENTENCE, "handed": "Hello!", "by": "Expert"}
    assert results == {"responses": same, "chat": same}


def test_the_agents_sdk_for_python(tmp_path: Path) -> None:
    handoff = call("transfer_to_expert", {})
    turns = [WEATHER, SUNNY, WEATHER, SUNNY, PLACE, handoff, HELLO, HELLO, HELLO] * 2
    results, _ = run_with("agents_python.py", turns, tmp_path)
    same: dict[str, object] = {"whole": SENTENCE, "streamed": [SENTENCE] * 2, "typed": "Paris"}
    same |= {"handed": ["Hello!", "Expert"], "session": ["Hello!", 6]}
    assert results == {"responses": same, "chat": same}


def test_the_agents_sdk_with_every_reasoning_feature_and_programs(tmp_path: Path) -> None:
    needs_bubblewrap()
    code = "found = await asyncio.gather(*(functions.stock(sku=each) for each in 'abc'))\nprint(found)"
    program = call("run", {"code": code}).replace("functions.run", "program.run")
    turns = [WEATHER, SUNNY, HELLO, program, final("Six."), program, final("Six again.")]
    how: Any = {"allow_priority": True, "python": "bubblewrap", "browser": "off"}
    results, recorder = run_with("agents_reasoning.py", turns, tmp_path, **how)
    same = {"summary": "Let me think." * 2, "final": SENTENCE, "scored": SENTENCE}
    assert results["reasoning"] == {**same, "sealed": 2, "again": "Hello!"}
    assert results["programs"] == {"answers": ["Six.", "Six again."], "called": ["a", "b", "c"] * 2}
    second = recorder.of("/v1/responses")[1].body
    assert second["store"] is False
    assert next(item["type"] for item in second["input"] if "type" in item) == "reasoning"


def test_langchain(tmp_path: Path) -> None:
    results, recorder = run_with("langchain_client.py", [WEATHER, SUNNY, SUNNY, HELLO, PLACE] * 4, tmp_path)
    same = {"whole": [SENTENCE, 4], "again": SENTENCE, "streamed": "Hello!", "typed": "Paris", "usage": True}
    assert results == dict.fromkeys(("responses", "stateless", "chat", "messages"), same)
    assert len(recorder.of("/v1/responses")) == 10


def test_litellm(tmp_path: Path) -> None:
    results, _ = run_with(
        "litellm_client.py", [WEATHER, SUNNY, *[HELLO] * 4, WEATHER, SUNNY, HELLO], tmp_path
    )
    call = ["get_weather", {"city": "Paris"}]
    same = {"call": call, "answer": SENTENCE, "streamed": "Hello!"}
    assert results == {
        "chat": same,
        "messages": same,
        "reasoning": "Let me think.",
        "response": "Hello!",
        "last": "response.completed",
    }


def test_pydantic_ai(tmp_path: Path) -> None:
    typed = call("final_result", {"city": "Paris"})
    turns = [WEATHER, SUNNY, SUNNY, WEATHER, SUNNY, typed]
    results, _ = run_with("pydantic_ai_client.py", turns * 3, tmp_path)
    same = dict.fromkeys(("whole", "again", "streamed"), SENTENCE) | {"typed": "Paris"}
    assert results == {"responses": same, "chat": same, "messages": same}


_PAGES = [block for block in blocks() if block.page.startswith("docs/clients/")]
CODE = [block for block in _PAGES if block.language in ("python", "js") and block.reason is None]


@pytest.mark.parametrize("block", CODE, ids=str)
def test_the_code_of_a_page_prints_the_answer(block: Block, tmp_path: Path) -> None:
    """As it stands, except for the address."""
    with recorded(scripted(HELLO), Settings(served_model_name=("tiny",))) as (url, _):
        code = block.code.replace(ADDRESS, url.removesuffix("/v1"))
        name = "page.py" if block.language == "python" else "page.mjs"
        assert run_code(name, code, tmp_path).strip() == "Hello!"


def history_of_calls(recorder: Recorder) -> tuple[Any, Any]:
    """The kinds of the last two messages, and of the last two items, of each API's second request."""
    messages = recorder.of("/v1/chat/completions")[1].body["messages"]
    items = recorder.of("/v1/responses")[1].body["input"]
    return (
        [(each.get("role"), len(each.get("tool_calls") or ())) for each in messages[-2:]],
        [each.get("type") for each in items[-2:]],
    )


CALLED = ([("assistant", 1), ("tool", 0)], ["function_call", "function_call_output"])


def test_instructor(tmp_path: Path) -> None:
    """The validator rejects the first call, and the SDK sends its complaint with the next request."""
    place = call("Place", {"city": "Paris"})
    turns = [PLACE, PLACE, call("Place", {"city": "Atlantis"}), place, place, place]
    turns.append(call("PartialPlace", {"city": "Paris"}))
    results, recorder = run_with("instructor_client.py", turns, tmp_path, "instructor")
    modes = ("JSON_SCHEMA", "JSON", "TOOLS", "TOOLS_STRICT", "RESPONSES_TOOLS")
    assert results == dict.fromkeys((*modes, "partial"), "Paris")
    assert "no such city" in str(recorder.of("/v1/chat/completions")[3].body["messages"])


def test_dspy(tmp_path: Path) -> None:
    def fields(**values: str) -> str:
        texts = [f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in values.items()]
        return final("".join(texts) + "[[ ## completed ## ]]")

    step = {"next_thought": "Look.", "next_tool_name": "get_weather", "next_tool_args": '{"city": "Paris"}'}
    end = {"next_thought": "Done.", "next_tool_name": "finish", "next_tool_args": "{}"}
    thought = fields(reasoning="I know one.", answer="Paris")
    turns = [fields(answer="Paris"), thought, fields(**step), fields(**end), thought]
    results, _ = run_with("dspy_client.py", turns * 2, tmp_path, "dspy")
    agent = ["Paris", "sunny in Paris"]
    same = {"plain": "Paris", "thought": ["I know one.", "Paris"], "agent": agent}
    assert results == {"chat": same, "responses": same}


def test_smolagents(tmp_path: Path) -> None:
    """Its answers are calls, or code that the stop string `</code>` ends."""
    end = call("final_answer", {"answer": SENTENCE})
    code = final('<code>\nfinal_answer(get_weather("Paris"))\n</code>')
    turns = [WEATHER, end, WEATHER, end, code]
    results, recorder = run_with("smolagents_client.py", turns, tmp_path, "smolagents")
    assert results == {"calling": SENTENCE, "streamed": SENTENCE, "coding": "sunny in Paris"}
    assert "</code>" in recorder.of("/v1/chat/completions")[4].body["stop"]


def test_autogen(tmp_path: Path) -> None:
    turns = [WEATHER, SUNNY, WEATHER, SUNNY, PLACE]
    results, _ = run_with("autogen_client.py", turns, tmp_path, "autogen")
    streamed = "<think>Let me think.</think>" * 2 + SENTENCE
    assert results == {"whole": SENTENCE, "streamed": streamed, "typed": {"city": "Paris"}}


TYPED = call("Place", {"city": "Paris"})
EITHER = {"whole": SENTENCE, "streamed": SENTENCE}


@pytest.mark.parametrize(
    ("name", "turns", "results", "other"),
    [
        ("crewai", [WEATHER, SUNNY, PLACE], {"whole": SENTENCE, "typed": "Paris"}, "completions"),
        ("agno", [*WITH_STREAM, PLACE], {**EITHER, "typed": "Paris", "tokens": True}, "chat"),
        ("haystack", [*WITH_STREAM, PLACE], {**EITHER, "typed": {"city": "Paris"}}, "chat"),
        ("strands", [*WITH_STREAM, TYPED], {**EITHER, "typed": "Paris"}, "chat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_framework_over_both_apis(
    name: str, turns: list[str], results: dict[str, object], other: str, tmp_path: Path
) -> None:
    found, recorder = run_with(f"{name}_client.py", turns * 2, tmp_path, name)
    assert found == {other: results, "responses": results}
    assert history_of_calls(recorder) == CALLED


def test_llama_index(tmp_path: Path) -> None:
    """Typed answers are a forced call over Chat, and a format over Responses."""
    turns = [WEATHER, SUNNY, HELLO, TYPED, WEATHER, SUNNY, HELLO, PLACE]
    results, recorder = run_with("llama_index_client.py", turns, tmp_path, "llama-index")
    same = {"whole": SENTENCE, "streamed": "Hello!", "typed": "Paris"}
    assert results == {"chat": same, "responses": same}
    assert history_of_calls(recorder) == CALLED


def test_inspect(tmp_path: Path) -> None:
    results, recorder = run_with("inspect_client.py", [WEATHER, SUNNY] * 2, tmp_path, "inspect")
    roles = ["user", "assistant", "tool", "assistant"]
    same = {"status": "success", "answer": SENTENCE, "accuracy": 1.0, "roles": roles}
    assert results == {"chat": same, "responses": same}
    assert history_of_calls(recorder) == CALLED


DONE = final("I did it.")
MADE = ["thinking", "tool_use", "redacted_thinking"]
SAME: dict[str, Any] = {
    "created": [MADE] * 2,
    "streamed": [[MADE, True, "tool_use"]] * 2,
    "parsed": "Paris",
    "run": SENTENCE,
}


def test_the_sdk_of_anthropic_for_python(tmp_path: Path) -> None:
    later = [HELLO, call("get_weather_later", {"city": "Paris"}), SUNNY]
    results, _ = run_with("anthropic_python.py", [WEATHER, SUNNY, *[WEATHER] * 4, PLACE, *later], tmp_path)
    assert results == {**SAME, "later": ["Hello!", ["thinking", "text"], SENTENCE]}


def test_the_sdk_of_anthropic_for_javascript(tmp_path: Path) -> None:
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
