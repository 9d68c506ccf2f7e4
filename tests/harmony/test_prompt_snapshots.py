"""Whole prompts as readable text, in snapshots/. After an intended change, refresh them and read the diff:

UPDATE_SNAPSHOTS=1 python -m pytest tests/harmony/test_prompt_snapshots.py
"""

import os
from pathlib import Path

import pytest

from gpt_oss_server.harmony.declarations import Declared, FunctionTool, ResponseFormat, ToolNamespace
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import CallForm, Renderer
from tests.doubles.harmony.decoding import builtin_namespace, decode, messages_of
from tests.doubles.harmony.schemas import NULL, NUMBER, array, integer, opened, text
from tests.doubles.harmony.shapes import DECLARED

ENCODING = load_encoding()
SNAPSHOTS = Path(__file__).parent / "snapshots"
Prompt = tuple[list[Segment], list[Segment]]

HERE = {"$ref": "#/$defs/place"}
PLACE = {**opened(lat=NUMBER, near=HERE), "description": "A place", "required": ["lat"]}
WHERE = opened(
    city=text(description="City and country", examples=["Oslo, Norway"]),
    unit=text(enum=["celsius", "fahrenheit"], default="celsius"),
    days=integer(minimum=1, maximum=14, default=1),
    at={"anyOf": [text(format="date"), NULL], "title": "Day"},
    where=HERE,
    tags=array({"enum": ["rain", "wind", 3]}),
)
SCHEMA = {**WHERE, "required": ["city"], "$defs": {"place": PLACE}}
WEATHER = FunctionTool("get_weather", "The weather at a place.\nNever guess it.", SCHEMA)
FORMAT = ResponseFormat("answer", {"type": "object", "title": "é"}, "The answer as JSON.")


def hello(renderer: Renderer) -> Prompt:
    return [renderer.system(effort="medium", date="2025-06-28")], [renderer.user("What is 2 + 2?")]


def functions(renderer: Renderer) -> Prompt:
    system = renderer.system(effort="high", date="2025-06-28", function_tools=True)
    history = [renderer.developer_message("Answer in Norwegian."), renderer.user("Weather in Oslo?")]
    declared = Declared("You are a weather service.", [WEATHER, FunctionTool("now")])
    return renderer.opening(system, history, declared)


def tool_loop(renderer: Renderer) -> Prompt:
    head, opening = functions(renderer)
    return head, [
        *opening,
        renderer.reasoning("Old reasoning, dropped."),
        renderer.call("functions.now", "{}"),
        renderer.tool_result("functions.now", "12:00"),
        renderer.answer("It is noon."),
        renderer.developer_message("Be brief."),
        renderer.user("And the weather?"),
        renderer.reasoning("I need the weather."),
        renderer.preamble("Let me look."),
        renderer.call("functions.get_weather", '{"city": "Oslo, Norway"}'),
        renderer.tool_result("functions.get_weather", '{"sky": "<|end|> blue"}'),
    ]


def builtin_tools(renderer: Renderer) -> Prompt:
    tools = [builtin_namespace("browser"), builtin_namespace("python")]
    mcp = ToolNamespace("deepwiki", "Docs of projects.", (FunctionTool("ask", "Asks.", {"type": "object"}),))
    system = renderer.system(effort="low", date=None, builtin_tools=tools, identity="You are Bo.")
    head, _ = renderer.opening(system, [], Declared(None, [FunctionTool("f")], [mcp], [FORMAT]))
    return head, [
        renderer.user("Plot it.", name="ada"),
        renderer.call("python", "print(1)", channel="analysis", content_type="code"),
        renderer.tool_result("python", "1", channel="analysis"),
    ]


def sampled_turn(renderer: Renderer) -> Prompt:
    """A turn as sampled, recipient first, then the next request."""
    head, history = hello(renderer)
    tokens = ENCODING.encode_special(
        "<|channel|>analysis<|message|>Dropped: answered below.<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
    )
    answer = ENCODING.encode_special("<|channel|>final<|message|>4, and that is fi")
    turn = renderer.from_completion(tokens, messages_of(decode(ENCODING, tokens, DECLARED)))
    cut = renderer.from_completion(answer, messages_of(decode(ENCODING, answer, DECLARED)))
    result = renderer.tool_result("functions.f", "4")
    return head, [*history, *turn, result, *cut, renderer.user("Go on.")]


BUILT = (hello, functions, tool_loop, builtin_tools, sampled_turn)
CASES = {build.__name__: (build, CallForm.CHANNEL_FIRST) for build in BUILT}
CASES["tool_loop_recipient_first"] = tool_loop, CallForm.RECIPIENT_FIRST


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_equals_its_snapshot(name: str) -> None:
    build, form = CASES[name]
    renderer = Renderer(ENCODING, call_form=form)
    prompt = ENCODING.decode(renderer.layout(*build(renderer)).tokens())
    readable = prompt.replace("<|start|>", "\n<|start|>").lstrip("\n") + "\n"
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(readable, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == readable


def test_every_snapshot_has_its_test() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(CASES)
