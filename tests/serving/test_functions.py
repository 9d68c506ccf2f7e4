"""`create_app` with a user's function: it takes what such clients always send, and begins a forced call."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import OpenAI

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.serving import serving

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CHAT_TOOL = {"type": "function", "function": {key: TOOL[key] for key in ("name", "parameters")}}
HEADER = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
SENT = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.0}
PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/responses", {"input": "Hi", "top_logprobs": 2}),
    ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True}),
    ("/completions", {"prompt": "Hi", "logprobs": 1}),
]


class Model:
    """Answers "Hello!", or writes arguments if the prompt ends with the header of a call."""

    def __init__(self, encoding: Encoding) -> None:
        self.prompts: list[str] = []
        self._encoding = encoding
        self._left: list[int] = []

    def __call__(self, tokens: list[int], temperature: float, new_request: bool) -> int:
        if new_request:
            self.prompts.append(self._encoding.decode(tokens))
            called = self.prompts[-1].endswith(HEADER)
            text = '{"city":"Oslo"}<|call|>' if called else "<|channel|>final<|message|>Hello!<|return|>"
            self._left = self._encoding.encode_special(text)
        return self._left.pop(0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), PATHS, ids=[path for path, _ in PATHS])
def test_fields_without_effect_are_named_in_a_header(
    encoding: Encoding, path: str, body: dict[str, Any], stream: bool
) -> None:
    with serving(Model(encoding)) as url:
        answer = httpx.post(f"{url}{path}", json={**body, **SENT, "stream": stream}, timeout=60)
        plain = httpx.post(
            f"{url}{path}",
            json={"temperature": 0.5, "top_p": 1.0, "top_k": -1, **body}
            | {"logprobs": None, "top_logprobs": None},
        )
        biased = httpx.post(f"{url}{path}", json={**body, "logit_bias": {"5": 1}})
    assert answer.status_code == 200
    assert "Hello" in answer.text
    assert answer.headers["x-ignored-fields"] == "logprobs, presence_penalty, seed, top_p"
    assert "x-ignored-fields" not in plain.headers
    assert (biased.status_code, biased.json()["error"]["param"]) == (400, "logit_bias")


def test_scores_that_the_function_does_not_have_are_null(encoding: Encoding) -> None:
    with serving(Model(encoding)) as url, OpenAI(base_url=url, api_key="any") as client:
        chat = client.chat.completions.create(
            model="custom", messages=[{"role": "user", "content": "Hi"}], logprobs=True
        )
        plain = client.completions.create(model="custom", prompt="Hi", logprobs=1)
    assert (chat.choices[0].message.content, chat.choices[0].logprobs) == ("Hello!", None)
    assert plain.choices[0].logprobs is None


def test_a_forced_call_is_begun_for_the_function(encoding: Encoding) -> None:
    model = Model(encoding)
    with serving(model) as url, OpenAI(base_url=url, api_key="any") as client:
        response = client.responses.create(
            model="custom",
            input="Hi",
            tools=[TOOL],
            tool_choice={"type": "function", "name": "f"},  # type: ignore[list-item]
        )
        chat = client.chat.completions.create(
            model="custom",
            messages=[{"role": "user", "content": "Hi"}],
            tools=[CHAT_TOOL],  # type: ignore[list-item]
            tool_choice={"type": "function", "function": {"name": "f"}},
        )
        free = client.responses.create(model="custom", input="Hi", tools=[TOOL], tool_choice="auto")  # type: ignore[list-item]
    assert [prompt.endswith(HEADER) for prompt in model.prompts] == [True, True, False]
    (call,) = response.output
    assert (call.type, call.status) == ("function_call", "completed")
    assert (call.name, call.arguments) == ("f", '{"city":"Oslo"}')
    assert chat.choices[0].finish_reason == "tool_calls"
    assert chat.choices[0].message.tool_calls is not None
    (called,) = chat.choices[0].message.tool_calls
    assert called.type == "function"
    assert (called.function.name, called.function.arguments) == ("f", '{"city":"Oslo"}')
    assert free.output_text == "Hello!"
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == len(encoding.encode_special(model.prompts[0]))
    assert chat.usage.prompt_tokens == len(encoding.encode_special(model.prompts[1]))
