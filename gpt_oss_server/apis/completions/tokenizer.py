"""The server's tokenizer for clients: /tokenize and /detokenize, and GET /tokenizer_info.

Bodies and answers have vLLM's shapes; `content` is llama.cpp's name for a text.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from gpt_oss_server.apis.completions.request import check_ids, encode_prompt
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, optional, read_body, required
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.validation import json_type
from gpt_oss_server.models.model import Model
from gpt_oss_server.runs.served import Served
from gpt_oss_server.turns.prompt import check_can_fit

ChatPrompt = Callable[[Caller, object], Awaitable[list[int]]]
"""The body of a chat request → the model's prompt."""


class TokenizeOptions(Body):
    """The body holds `prompt` or `content`, or `messages` and any other field of a chat request."""

    prompt: str | None = optional("The text.")
    content: str | None = optional("The same as `prompt`.")
    with_pieces: Boolean | None = optional("Returns each token with its text.")
    messages: list[Any] | None = optional(
        "Messages of a chat, whose whole prompt is returned. Any field of a chat request may go with them."
    )
    model: str | None = optional("The model to use. Left out: the server's first.")
    return_token_strs: Boolean | None = optional("Returns the text of each token too.")
    add_generation_prompt: Boolean | None = optional("With false, the prompt ends with the last message.")
    continue_final_message: Boolean | None = optional("The prompt ends within the last message.")


class DetokenizeRequest(Body):
    tokens: list[Any] = required("The token ids.")
    model: str | None = optional("The model to use. Left out: the server's first.")


async def tokenize(caller: Caller, body: object, served: Served, chat_prompt: ChatPrompt) -> dict[str, Any]:
    request, size = read_body(body, TokenizeOptions, '{"prompt": "Hello"}'), caller.body_size
    model = served.models.chosen(request.model, caller.access.models)
    if request.messages is not None:
        tokens = await _of_messages(caller, body, request, model, chat_prompt)
    elif (text := request.content if request.prompt is None else request.prompt) is not None:
        check_can_fit(model.info.context_length, "prompt", text)
        prompt = text
        tokens = await in_thread_if_large(size, lambda: encode_prompt(prompt, model.encoding), text)
    else:
        raise InvalidRequest.at("prompt", "is missing: send a text, or `messages`.")
    strings: list[str] | None = None
    if request.return_token_strs:
        decode = model.encoding.decode
        strings = await in_thread_if_large(size, lambda: [decode([token]) for token in tokens], tokens)
    pieces = [{"id": token, "piece": model.encoding.spelt(token)} for token in tokens if request.with_pieces]
    return {
        "count": len(tokens),
        "max_model_len": model.info.context_length,
        "tokens": pieces if request.with_pieces else tokens,
        "token_strs": strings,
    }


def detokenize(caller: Caller, body: object, served: Served) -> dict[str, Any]:
    request = read_body(body, DetokenizeRequest, '{"tokens": [200006]}')
    model = served.models.chosen(request.model, caller.access.models)
    check_ids(request.tokens, "tokens", model.info.vocab_size)
    text = model.encoding.decode(request.tokens)
    return {"prompt": text, "content": text}


async def _of_messages(
    caller: Caller, body: object, options: TokenizeOptions, model: Model, chat_prompt: ChatPrompt
) -> list[int]:
    """The prompt of the chat request, without the cue where the request generates nothing."""
    if not isinstance(body, dict):
        raise InvalidRequest(f"The request body must be an object, but is {json_type(body)}.")
    without_cue = options.add_generation_prompt is False and not options.continue_final_message
    chat_request = {key: value for key, value in body.items() if key != "add_generation_prompt"}
    tokens = await chat_prompt(caller, chat_request)
    return tokens[: -len(model.renderer.cue)] if without_cue else tokens


def tokenizer_info(model: Model) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|return|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": model.info.context_length,
        "vocab_size": model.info.vocab_size,
    }
