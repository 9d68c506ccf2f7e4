"""Texts and messages to token ids and back: the answers of /tokenize and /detokenize, in vLLM's shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gpt_oss_server.completions.request import check_ids, encode_prompt
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, read_body
from gpt_oss_server.http.validation import json_type
from gpt_oss_server.serving.served import Served

ChatPrompt = Callable[[object], Awaitable[list[int]]]
"""A chat request's body → the prompt that it would give the model."""


class TokenizeOptions(Body):
    """Beside them stands `prompt`, or `messages` and all else that a chat request has."""

    prompt: str | None = None
    messages: list[Any] | None = None
    model: str | None = None
    return_token_strs: Boolean | None = None
    add_generation_prompt: Boolean | None = None
    continue_final_message: Boolean | None = None


class DetokenizeRequest(Body):
    tokens: list[Any]
    model: str | None = None


async def tokenize(body: object, served: Served, chat_prompt: ChatPrompt) -> dict[str, Any]:
    asked = read_body(body, TokenizeOptions, {}, '{"prompt": "Hello"}')
    if asked.model is not None:
        served.check_model(asked.model)
    if asked.messages is not None:
        tokens = await _of_messages(body, asked, served, chat_prompt)
    elif asked.prompt is not None:
        tokens = await asyncio.to_thread(encode_prompt, asked.prompt, served.encoding)
    else:
        raise InvalidRequest("`prompt` is missing: send a text, or `messages`.", param="prompt")
    strings = [served.encoding.decode([token]) for token in tokens] if asked.return_token_strs else None
    return {
        "count": len(tokens),
        "max_model_len": served.engine.info.context_length,
        "tokens": tokens,
        "token_strs": strings,
    }


def detokenize(body: object, served: Served) -> dict[str, Any]:
    asked = read_body(body, DetokenizeRequest, {}, '{"tokens": [200006]}')
    if asked.model is not None:
        served.check_model(asked.model)
    check_ids(asked.tokens, "tokens", served.engine.info.vocab_size)
    return {"prompt": served.encoding.decode(asked.tokens)}


async def _of_messages(
    body: object, asked: TokenizeOptions, served: Served, chat_prompt: ChatPrompt
) -> list[int]:
    """The prompt of the chat request; without the cue where there is nothing to generate."""
    if not isinstance(body, dict):
        raise InvalidRequest(f"The request body must be an object, but is {json_type(body)}.")
    without_cue = asked.add_generation_prompt is False and not asked.continue_final_message
    request = {key: value for key, value in body.items() if key != "add_generation_prompt"}
    tokens = await chat_prompt(request)
    return tokens[: -len(served.renderer.cue)] if without_cue else tokens
