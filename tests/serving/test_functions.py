"""`create_app` with a user's function: it takes what such clients always send, and begins a forced call."""

from typing import Any

import httpx
import pytest

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.api_client import client_with
from tests.doubles.serving import serving

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": PARAMETERS}
CHAT_TOOL = {"type": "function", "function": {key: TOOL[key] for key in ("name", "parameters")}}
HEADER = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
SENT = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.0}
ASK: Any = [{"role": "user", "content": "Hi"}]
PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/responses", {"input": "Hi", "top_logprobs": 2}),
    ("/chat/completions", {"messages": ASK, "logprobs": True}),
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
def test_fields_without_effect_are_named(encoding: Encoding, path: str, body: Any, stream: bool) -> None:
    neutral = {"temperature": 0.5, "top_p": 1.0, "top_k": -1, "logprobs": None, "top_logprobs": None}
    with serving(Model(encoding)) as url:
        answer = httpx.post(f"{url}{path}", json={**body, **SENT, "stream": stream}, timeout=60)
        plain = httpx.post(f"{url}{path}", json={**body, **neutral})
        biased = httpx.post(f"{url}{path}", json={**body, "logit_bias": {"5": 1}})
    assert answer.status_code == 200
    assert "Hello" in answer.text
    assert answer.headers["x-ignored-fields"] == "logprobs, presence_penalty, seed, top_p"
    assert "x-ignored-fields" not in plain.headers
    assert (biased.status_code, biased.json()["error"]["param"]) == (400, "logit_bias")


def test_scores_that_the_function_does_not_have_are_null(encoding: Encoding) -> None:
    with client_with(Model(encoding)) as client:
        chat = client.chat.completions.create(model="custom", messages=ASK, logprobs=True)
        plain = client.completions.create(model="custom", prompt="Hi", logprobs=1)
    assert (chat.choices[0].message.content, chat.choices[0].logprobs) == ("Hello!", None)
    assert plain.choices[0].logprobs is None


def test_a_forced_call_is_begun_for_the_function(encoding: Encoding) -> None:
    model = Model(encoding)
    body: Any = {"model": "custom", "input": "Hi", "tools": [TOOL]}
    asked: Any = {"messages": ASK, "tools": [CHAT_TOOL]}
    chosen: Any = {"type": "function", "function": {"name": "f"}}
    with client_with(model) as client:
        response: Any = client.responses.create(**body, tool_choice={"type": "function", "name": "f"})
        chat: Any = client.chat.completions.create(model="custom", **asked, tool_choice=chosen)
        free: Any = client.responses.create(**body, tool_choice="auto")
    assert [prompt.endswith(HEADER) for prompt in model.prompts] == [True, True, False]
    (call,) = response.output
    assert (call.type, call.status) == ("function_call", "completed")
    assert (call.name, call.arguments) == ("f", '{"city":"Oslo"}')
    (choice,) = chat.choices
    (called,) = choice.message.tool_calls
    assert (choice.finish_reason, called.type) == ("tool_calls", "function")
    assert (called.function.name, called.function.arguments) == ("f", '{"city":"Oslo"}')
    assert free.output_text == "Hello!"
    begun = [len(encoding.encode_special(prompt)) for prompt in model.prompts[:2]]
    assert [response.usage.input_tokens, chat.usage.prompt_tokens] == begun
