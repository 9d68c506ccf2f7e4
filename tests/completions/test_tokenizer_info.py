"""GET /tokenizer_info lets a client tokenize and render as the server does."""

from __future__ import annotations

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


@pytest.mark.parametrize("identity", [None, "You are {% raw %}'Ada'{% endraw %}."])
def test_the_template_renders_the_servers_own_prompt(identity: str | None) -> None:
    settings = Settings(identity=identity, default_reasoning_effort="high")
    with serving(scripted("x"), settings) as url:
        root = url.removesuffix("/v1")
        template = httpx.get(f"{root}/tokenizer_info").json()["chat_template"]
        for messages in CONVERSATIONS:
            # As lm-eval and transformers configure Jinja.
            for options in ({}, {"trim_blocks": True, "lstrip_blocks": True}):
                made = jinja2.Environment(undefined=jinja2.StrictUndefined, **options).from_string(template)
                for cue in (True, False):
                    rendered = made.render(messages=messages, add_generation_prompt=cue)
                    body = {"messages": messages, "add_generation_prompt": cue}
                    wanted = httpx.post(f"{root}/tokenize", json=body).json()["tokens"]
                    assert (
                        httpx.post(f"{root}/tokenize", json={"prompt": rendered}).json()["tokens"] == wanted
                    )


def test_the_special_tokens_are_single_ids() -> None:
    with serving(scripted("x")) as url:
        root = url.removesuffix("/v1")
        info = httpx.get(f"{root}/tokenizer_info").json()
        ids = {
            name: httpx.post(
                f"{root}/tokenize", json={"prompt": info[name], "add_special_tokens": False}
            ).json()
            for name in ("bos_token", "eos_token", "pad_token")
        }
    assert ids["eos_token"]["tokens"] == [RETURN]
    assert ids["pad_token"]["tokens"] == [ENDOFTEXT]
    assert len(ids["bos_token"]["tokens"]) == 1
    assert info["model_max_length"] == ids["eos_token"]["max_model_len"]
