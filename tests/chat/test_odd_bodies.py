"""Odd values at every place of a body yield an answer or a 4xx error, never a defect."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.apis.completions.api import start
from gpt_oss_server.apis.completions.tokenizer import detokenize, tokenize
from gpt_oss_server.caller.caller import LOCAL
from tests.doubles.apis.chat_asking import TOOL, replaying, service_of
from tests.doubles.apis.odd_bodies import ODD, answer_or_sentence, places, with_odd

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
]
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": "a", "reasoning": "r", "refusal": None, "tool_calls": CALLS},
        {"role": "assistant", "executed_tools": [{"name": "python", "arguments": "1", "output": "1"}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
    ],
    "tools": [TOOL],
    "stop": ["a"],
    "logit_bias": {"1": 1},
    "chat_template_kwargs": {"date": "x"},
    "stream_options": {"include_usage": True},
    "metadata": {"a": "b"},
    "reasoning": {"effort": "low"},
}
PLAIN: dict[str, Any] = {"prompt": ["a", [1, 2]], "stop": "x", "logprobs": 1, "best_of": 1, "max_tokens": 3}
MORE = frozenset(
    {"tool_choice", "functions", "function_call", "web_search_options", "response_format", "modalities"}
    | {"audio", "seed", "n", "echo", "truncate_prompt_tokens", "top_logprobs", "logprobs", "response_prefix"}
    | {"continue_final_message", "verbosity", "store"}
)


@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_a_chat_request(odd: Any) -> None:
    service = service_of(replaying(HELLO))

    async def ask(body: Any) -> object:
        return await (await service.start(LOCAL, body)).wait()

    bodies = [with_odd(CHAT, place, odd) for place in places(CHAT)]
    for body in [*bodies, *({**CHAT, name: odd} for name in MORE)]:
        refused = await answer_or_sentence(ask(body))
        assert refused is None or refused.status in (400, 404), body


@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_plain_completions_and_tokens(odd: Any) -> None:
    service = service_of(replaying("Hello!<|return|>"))

    async def ask(body: Any) -> object:
        return await (await start(LOCAL, body, service.served)).wait()

    async def to_text(body: Any) -> object:
        return detokenize(body, service.served.model)

    plain = [with_odd(PLAIN, place, odd) for place in places(PLAIN)]
    model = service.served.model
    answers = [ask(body) for body in plain]
    answers += [tokenize(LOCAL, body, model, service.prompt) for body in plain]
    answers += [to_text(body) for body in (odd, {"tokens": odd}, {"tokens": [odd]})]
    for one in answers:
        refused = await answer_or_sentence(one)
        assert refused is None or refused.status == 400, refused.message
