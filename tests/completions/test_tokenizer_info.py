"""GET /tokenizer_info lets a client tokenize and render as the server does."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import jinja2
import pytest

from gpt_oss_server.harmony.encoding import ENDOFTEXT, RETURN
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

USER = {"role": "user", "content": "Hi\n{{ 'Oslo' }}"}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [USER],
    [{"role": "system", "content": "Be 'kind'\\.\n\nAlways."}, USER],
    [{"role": "system", "content": "One"}, {"role": "developer", "content": "Two"}, USER],
    [USER, {"role": "assistant", "content": "Hello!"}, {"role": "system", "content": "Late"}, USER],
]


def tokens_of(root: str, **body: Any) -> list[int]:
    return list(httpx.post(f"{root}/tokenize", json=body).json()["tokens"])


@pytest.mark.parametrize("identity", [None, "You are {% raw %}'Ada'{% endraw %}."])
def test_the_template_renders_the_servers_own_prompt(identity: str | None) -> None:
    settings = Settings(identity=identity, default_reasoning_effort="high")
    usual = ({}, {"trim_blocks": True, "lstrip_blocks": True})  # as lm-eval and transformers configure Jinja
    with serving(scripted("x"), settings) as url:
        root = url.removesuffix("/v1")
        template = httpx.get(f"{root}/tokenizer_info").json()["chat_template"]
        for messages, options, cue in itertools.product(CONVERSATIONS, usual, (True, False)):
            made = jinja2.Environment(undefined=jinja2.StrictUndefined, **options).from_string(template)
            body: dict[str, Any] = {"messages": messages, "add_generation_prompt": cue}
            assert tokens_of(root, prompt=made.render(**body)) == tokens_of(root, **body)


def test_the_special_tokens_are_single_ids() -> None:
    with serving(scripted("x")) as url:
        root = url.removesuffix("/v1")
        info = httpx.get(f"{root}/tokenizer_info").json()
        begins, ends, pads = (
            tokens_of(root, prompt=info[f"{name}_token"], add_special_tokens=False)
            for name in ("bos", "eos", "pad")
        )
    assert (len(begins), ends, pads) == (1, [RETURN], [ENDOFTEXT])
    assert info["model_max_length"] == 131_072
