"""Unmodified agent libraries over both APIs: each runs its own script, and the code of the clients' pages."""

from pathlib import Path

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.clients.recording import recorded
from tests.doubles.clients.running import HELLO, PLACE, SUNNY, WEATHER, call, run_code, run_with
from tests.doubles.pages.blocks import ADDRESS, Block, blocks
from tests.doubles.serving import scripted

pytestmark = pytest.mark.clients
SENTENCE = "It is sunny in Paris."


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
    results, recorder = run_with("ai_sdk.mjs", [WEATHER, SUNNY, WEATHER, SUNNY, PLACE] * 3, tmp_path)
    for name in ("responses", "chat", "compatible"):
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


def test_the_agents_sdk_with_every_reasoning_feature(tmp_path: Path) -> None:
    turns = [WEATHER, SUNNY, HELLO]
    results, recorder = run_with("agents_reasoning.py", turns, tmp_path, allow_priority=True)
    summary = "Let me think." * 2
    same = {"final": SENTENCE, "scored": SENTENCE}
    assert results == {**same, "summary": summary, "sealed": 2, "again": "Hello!"}
    second = recorder.of("/v1/responses")[1].body
    assert second["store"] is False
    assert next(item["type"] for item in second["input"] if "type" in item) == "reasoning"


def test_langchain(tmp_path: Path) -> None:
    results, recorder = run_with("langchain_client.py", [WEATHER, SUNNY, SUNNY, HELLO, PLACE] * 3, tmp_path)
    same = {"whole": [SENTENCE, 4], "again": SENTENCE, "streamed": "Hello!", "typed": "Paris", "usage": True}
    assert results == {"responses": same, "stateless": same, "chat": same}
    assert len(recorder.of("/v1/responses")) == 10


def test_litellm(tmp_path: Path) -> None:
    results, _ = run_with("litellm_client.py", [WEATHER, SUNNY, HELLO, HELLO, HELLO, HELLO], tmp_path)
    assert results == {
        "call": ["get_weather", {"city": "Paris"}],
        "answer": SENTENCE,
        "streamed": "Hello!",
        "reasoning": "Let me think.",
        "response": "Hello!",
        "last": "response.completed",
    }


def test_pydantic_ai(tmp_path: Path) -> None:
    typed = call("final_result", {"city": "Paris"})
    turns = [WEATHER, SUNNY, SUNNY, WEATHER, SUNNY, typed]
    results, _ = run_with("pydantic_ai_client.py", turns * 2, tmp_path)
    same = dict.fromkeys(("whole", "again", "streamed"), SENTENCE) | {"typed": "Paris"}
    assert results == {"responses": same, "chat": same}


_PAGES = [block for block in blocks() if block.page.startswith("docs/clients/")]
CODE = [block for block in _PAGES if block.language in ("python", "js") and block.reason is None]


@pytest.mark.parametrize("block", CODE, ids=str)
def test_the_code_of_a_page_prints_the_answer(block: Block, tmp_path: Path) -> None:
    """As it stands, except for the address."""
    with recorded(scripted(HELLO), Settings(served_model_name=("tiny",))) as (url, recorder):
        code = block.code.replace(f"{ADDRESS}/v1", url)
        name = "page.py" if block.language == "python" else "page.mjs"
        assert run_code(name, code, tmp_path).strip() == "Hello!"
    recorder.check()
