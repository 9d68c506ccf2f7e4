"""Serve a model of your own: any `infer_next_token(tokens, temperature, new_request) -> int`."""

import os

import uvicorn

from gpt_oss_server.app import create_app
from gpt_oss_server.harmony.encoding import load_encoding

ANSWER = load_encoding().encode_special("<|channel|>final<|message|>Whatever you say.<|return|>")
position = 0


def infer_next_token(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
    """The id that follows `tokens`; `new_request` is true for the first token of an answer."""
    global position
    position = 0 if new_request else position + 1
    return ANSWER[position]


if __name__ == "__main__":
    uvicorn.run(create_app(infer_next_token), host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
