"""Texts and messages to token ids and back: the answers of /tokenize and /detokenize, in vLLM's shapes."""

from __future__ import annotations

import asyncio
from typing import Any

from gpt_oss_server.chat.service import ChatService
from gpt_oss_server.completions.request import check_ids, encode_prompt
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, read_body
from gpt_oss_server.http.validation import json_type


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


async def tokenize(body: object, chat: ChatService) -> dict[str, Any]:
    asked = read_body(body, TokenizeOptions, {}, '{"prompt": "Hello"}')
    served = chat.served
    if asked.model is not None:
        served.check_model(asked.model)
    if asked.messages is not None:
        tokens = await _of_messages(body, asked, chat)
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


def detokenize(body: object, chat: ChatService) -> dict[str, Any]:
    asked = read_body(body, DetokenizeRequest, {}, '{"tokens": [200006]}')
    if asked.model is not None:
        chat.served.check_model(asked.model)
    check_ids(asked.tokens, "tokens", chat.served.engine.info.vocab_size)
    return {"prompt": chat.served.encoding.decode(asked.tokens)}


async def _of_messages(body: object, asked: TokenizeOptions, chat: ChatService) -> list[int]:
    """The prompt of the chat request; without the cue where there is nothing to generate."""
    if not isinstance(body, dict):
        raise InvalidRequest(f"The request body must be an object, but is {json_type(body)}.")
    without_cue = asked.add_generation_prompt is False and not asked.continue_final_message
    request = {key: value for key, value in body.items() if key != "add_generation_prompt"}
    tokens = await chat.prompt(request)
    return tokens[: -len(chat.served.renderer.cue)] if without_cue else tokens
