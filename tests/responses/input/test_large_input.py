"""Large requests: which turns are dropped if they do not fit, the cost, and the thread that renders them."""

import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import create_autospec

import pytest

from gpt_oss_server.apis.responses import request
from gpt_oss_server.apis.responses.run import RefusedRun
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ContextLengthExceeded
from gpt_oss_server.harmony.declarations import FunctionTool
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Layout, Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items import function_call
from gpt_oss_server.turns.prompt import Head, fitted_layout
from tests.doubles.apis.asking import conversations_of, responses_service
from tests.doubles.random_tests.seeds import seeds
from tests.doubles.serving import scripted

TOOL = FunctionTool("f", "Does something.", {"type": "object", "properties": {"a": {"type": "string"}}})
Fitted = tuple[tuple[int, ...], tuple[Segment, ...]] | str


def fitted(
    renderer: Renderer, history: tuple[Segment, ...], *, instructions: str | None = None, **options: Any
) -> Fitted:
    """The prompt and its history, or the error message."""
    given = {"truncates": True, "answer": 1, "param": "input"}
    system = renderer.system(effort="low", date=None)
    head = Head(renderer, system, instructions=instructions, tools=[TOOL], namespaces=())
    try:
        layout, shown = fitted_layout(head, history, **{**given, **options})
    except ContextLengthExceeded as error:
        return str(error)
    return tuple(layout.tokens()), shown


def one_by_one(renderer: Renderer, history: tuple[Segment, ...], **options: Any) -> Fitted:
    """The reference: drops the oldest turn and builds the whole prompt again."""
    while True:
        found = fitted(renderer, history, **{**options, "truncates": False})
        shorter = without_oldest_turn(history)
        if not isinstance(found, str) or shorter is None:
            return found
        history = shorter


def without_oldest_turn(history: Sequence[Segment]) -> tuple[Segment, ...] | None:
    turns = [place for place, segment in enumerate(history) if segment.role == "user"]
    if len(turns) < 2:
        return None
    return (*(s for s in history[: turns[1]] if s.role == "developer"), *history[turns[1] :])


def random_history(renderer: Renderer, chance: random.Random) -> tuple[Segment, ...]:
    """Turns of all shapes; some segments occur more than once."""

    def text() -> str:
        words = ["a", "two words", "!", "\n", "end.\n\n", "\u5929"]
        return " ".join(chance.choices(words, k=chance.randint(1, 9)))

    plain = (renderer.user, renderer.user, renderer.developer_message, renderer.answer, renderer.reasoning)
    makers: list[Callable[[str], Segment]] = [
        *plain,
        renderer.preamble,
        partial(renderer.call, "functions.f"),
        partial(renderer.tool_result, "functions.f"),
    ]
    made = [chance.choice(makers)(text()) for _ in range(chance.randint(1, 25))]
    return tuple(made + chance.sample(made, chance.randint(0, len(made) // 3)))


@pytest.mark.parametrize("seed", seeds(20, proofs=60))
def test_the_same_turns_are_dropped_as_one_by_one(encoding: Encoding, seed: int) -> None:
    renderer = Renderer(encoding)
    chance = random.Random(seed)
    history = random_history(renderer, chance)
    longest = sum(len(segment.tokens) for segment in history) + 150
    for _ in range(8):
        options: dict[str, Any] = {
            "context": chance.randint(20, longest),
            "most": chance.choice([None, chance.randint(10, longest)]),
            "instructions": chance.choice([None, "Be brief.", "Be brief.\n"]),
        }
        assert fitted(renderer, history, **options) == one_by_one(renderer, history, **options)


@pytest.mark.parametrize("instructed", [False, True])
def test_dropping_many_turns_costs_about_as_much_as_one(encoding: Encoding, instructed: bool) -> None:
    renderer = Renderer(encoding)
    turn = [renderer.user("a question"), renderer.answer("an answer")]
    if instructed:  # which stay when their turn is dropped
        turn.insert(0, renderer.developer_message("Be brief."))
    history = tuple(turn * 2_500)
    total = sum(len(segment.tokens) for segment in history)
    kept = 2_500 * len(turn[0].tokens) if instructed else 0

    def seconds(context: int) -> float:
        began = time.process_time()
        assert not isinstance(fitted(renderer, history, context=context), str)
        return time.process_time() - began

    one = min(seconds(total) for _ in range(5))
    most_of_them = min(seconds(kept + 300) for _ in range(5))
    assert most_of_them < 20 * one  # once it took a thousand times as long


PROPERTIES = {f"p{number}": {"type": "string"} for number in range(30)}
MANY_TOOLS = [
    {"type": "function", "name": f"f{number}", "parameters": {"type": "object", "properties": PROPERTIES}}
    for number in range(20)
]


@pytest.mark.parametrize(
    ("body", "elsewhere"),
    [
        ({"input": "Hello"}, False),
        ({"input": "a word " * 5_000}, True),
        ({"input": [{"role": "user", "content": "x"}] * 600}, True),
        ({"input": "Hello", "tools": MANY_TOOLS}, True),
    ],
    ids=["small", "characters", "messages", "tools"],
)
async def test_a_large_request_is_rendered_in_a_thread(
    service: ResponsesService, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], elsewhere: bool
) -> None:
    renderer, threads = service.served.models.first.renderer, set()
    user = renderer.user

    def watched(text: str, *, name: str | None = None) -> Segment:
        threads.add(threading.get_ident())
        return user(text, name=name)

    monkeypatch.setattr(renderer, "user", watched)
    await service.render(LOCAL, body)
    assert (threading.get_ident() not in threads) is elsewhere


FINAL = "<|channel|>final<|message|>Hi<|return|>"
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
FOUND = {"type": "tool_search_output", "call_id": None, "tools": [WEATHER]}


Counted = Callable[[Any, str], Any]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Watches the calls of a function, which still runs."""

    def counting(owner: Any, name: str) -> Any:
        real = getattr(owner, name)
        watched = create_autospec(real, side_effect=real)
        monkeypatch.setattr(owner, name, watched)
        return watched

    return counting


@pytest.fixture
async def service(encoding: Encoding) -> AsyncIterator[ResponsesService]:
    made = responses_service(scripted(FINAL), encoding=encoding)
    yield made
    await made.close()


async def test_tools_of_an_item_are_read_once(counted: Counted, service: ResponsesService) -> None:
    read = counted(function_call, "function_tool")
    added = {"type": "additional_tools", "role": "developer", "tools": [{**WEATHER, "name": "more"}]}
    await service.render(LOCAL, {"input": [{"role": "user", "content": "Hi"}, FOUND, added]})
    places = [call.args[1] for call in read.call_args_list]
    assert places == ["input[1].tools[0]", "input[2].tools[0]"]


@pytest.mark.parametrize("management", [None, [{"type": "compaction"}]], ids=["plain", "managed"])
async def test_a_prompt_is_built_once(counted: Counted, service: ResponsesService, management: Any) -> None:
    opened, built = counted(Renderer, "opening"), counted(Layout, "tokens")
    await (await service.start(LOCAL, {"input": "Hi", "context_management": management})).wait()
    assert (opened.call_count, built.call_count) == (1, 1)


async def test_a_prompt_that_is_too_long_is_never_built(counted: Counted, service: ResponsesService) -> None:
    built = counted(Layout, "tokens")
    context = service.served.models.first.engine.info.context_length
    half = [{"role": "user", "content": " word" * (context // 2)}]
    conversation = (await conversations_of(service).create({"items": half}))["id"]
    await conversations_of(service).add_items(conversation, {"items": half})
    body = {"input": "Hi", "conversation": conversation}
    with pytest.raises(ContextLengthExceeded):
        await service.start(LOCAL, body)
    assert not built.called
    run = await service.start(LOCAL, {**body, "truncation": "auto"})
    assert ((await run.wait())["status"], built.call_count) == ("completed", 1)


async def test_a_body_that_is_too_long_is_read_once(counted: Counted, service: ResponsesService) -> None:
    validated = counted(request, "read_body")
    run = await service.start_streamed(LOCAL, {"input": "word " * 140_000, "stream": True})
    assert isinstance(run, RefusedRun)
    assert validated.call_count == 1
