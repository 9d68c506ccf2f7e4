"""Odd values at every place of a body, of any API: an answer or a 4xx error, never a defect."""

import json
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from gpt_oss_server.apis.completions.api import start
from gpt_oss_server.apis.completions.tokenizer import detokenize, tokenize
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError
from gpt_oss_server.json_values import without_lone_surrogates
from tests.doubles.apis.asking import FINAL, Asking
from tests.doubles.apis.chat_asking import TOOL, replaying, service_of
from tests.doubles.apis.client_tools import CRM, DIGITS, EDIT, ITEMS
from tests.doubles.apis.client_tools import LOCAL as LOCAL_SHELL

HELLO = FINAL.format("Hello!")
EMPTY: tuple[Any, ...] = (None, 0, "", [], {})
ODD = (*EMPTY, True, -1, 1.5, "x", [None], [{}], {"a": 1}, "\ud800", {"type": []})
EVERY_VALUE = pytest.mark.parametrize("odd", range(len(ODD)), ids=lambda odd: str(ODD[odd]))


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*place, key))


def with_odd(body: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    copy = inner = json.loads(json.dumps(body))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    return copy


async def check(request: Awaitable[Any], body: Any, *statuses: int) -> None:
    """An answer, or an error with one of these statuses; a defect raises."""
    try:
        answer, status = await request, None
    except ApiError as error:
        answer, status = None, error.status
    assert answer or status in statuses, body


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
    DIGITS,
    CRM,
    LOCAL_SHELL,
    {"type": "shell", "environment": {"type": "local"}},
    EDIT,
    {"type": "tool_search", "execution": "client", "description": "x", "parameters": {"type": "object"}},
]
TEXTS = [{"type": "input_text", "text": "x"}]
OF_AGENTS: list[dict[str, Any]] = [  # the SDK does not know these
    {"type": "agent_message", "author": "a", "recipient": "b", "content": TEXTS},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
]
CHOICES = ({"type": "custom", "name": "dial"}, {"type": "function", "name": "find", "namespace": "crm"})
WHOLE = ({"tools": TOOLS}, {"input": [*ITEMS, *OF_AGENTS]}, *({"tool_choice": choice} for choice in CHOICES))
PLACES = [(whole, place) for whole in WHOLE for place in places(whole) if place]


@pytest.mark.parametrize("rest", [0, pytest.param(1, marks=pytest.mark.proof)])
@EVERY_VALUE
async def test_a_response(odd: int, rest: int) -> None:
    """Each value in half of the places, and half of the values in each place; the others are proofs."""
    for whole, place in PLACES[(odd + rest) % 2 :: 2]:
        body = without_lone_surrogates({"tools": TOOLS, **with_odd(whole, place, ODD[odd])})
        await check(Asking(HELLO)(**body), body, 400, 404)


CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
]
MESSAGES = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
    {"role": "assistant", "content": "a", "reasoning": "r", "refusal": None, "tool_calls": CALLS},
    {"role": "assistant", "executed_tools": [{"name": "python", "arguments": "1", "output": "1"}]},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "x"},
]
OPTIONS = {"chat_template_kwargs": {"date": "x"}, "stream_options": {"include_usage": True}}
OPTIONS |= {"logit_bias": {"1": 1}, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}}
CHAT: dict[str, Any] = {"messages": MESSAGES, "tools": [TOOL], "stop": ["a"], **OPTIONS}
PLAIN: dict[str, Any] = {"prompt": ["a", [1, 2]], "stop": "x", "logprobs": 1, "best_of": 1, "max_tokens": 3}
MORE = (
    "tool_choice functions function_call web_search_options response_format modalities audio seed n echo "
    "truncate_prompt_tokens top_logprobs logprobs response_prefix continue_final_message verbosity store"
)


@EVERY_VALUE
async def test_a_chat_completion(odd: int) -> None:
    service = service_of(replaying(HELLO))

    async def ask(body: Any) -> object:
        return await (await service.start(LOCAL, body)).wait()

    bodies = [with_odd(CHAT, place, ODD[odd]) for place in places(CHAT)]
    for body in [*bodies, *({**CHAT, name: ODD[odd]} for name in MORE.split())]:
        await check(ask(body), body, 400, 404)


@EVERY_VALUE
async def test_plain_completions_and_tokens(odd: int) -> None:
    service = service_of(replaying("Hello!<|return|>"))
    model = service.served.model

    async def ask(body: Any) -> object:
        return await (await start(LOCAL, body, service.served)).wait()

    async def to_text(body: Any) -> object:
        return detokenize(body, model)

    for place in places(PLAIN):
        body = with_odd(PLAIN, place, ODD[odd])
        await check(ask(body), body, 400)
        await check(tokenize(LOCAL, body, model, service.prompt), body, 400)
    for body in (ODD[odd], {"tokens": ODD[odd]}, {"tokens": [ODD[odd]]}):
        await check(to_text(body), body, 400)
