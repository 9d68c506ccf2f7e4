"""Unmodified agent frameworks, each in an environment of its own: each runs its own script."""

from pathlib import Path
from typing import Any

import pytest

from tests.doubles.clients.recording import Recorder
from tests.doubles.clients.running import HELLO, PLACE, SUNNY, WEATHER, call, final, run_with

pytestmark = pytest.mark.clients

SENTENCE = "It is sunny in Paris."


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


WITH_STREAM = [WEATHER, SUNNY, WEATHER, SUNNY]
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
