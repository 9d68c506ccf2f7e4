"""`continuous_usage_stats`: each chunk counts its own choice, as in vLLM; the last counts all of them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.api_client import events_in
from tests.doubles.apis.chat_asking import chunks_of
from tests.doubles.serving import scripted, serving

SHORT, LONG = (f"<|channel|>final<|message|>{text}<|return|>" for text in ("Hi", "One, two, three"))
OPTIONS = {"include_usage": True, "continuous_usage_stats": True}


async def test_a_chunk_of_a_chat_counts_its_own_choice(encoding: Encoding) -> None:
    chunks = await chunks_of(scripted(SHORT, LONG), n=2, stream_options=OPTIONS)
    *parts, last = chunks
    lengths = sorted(len(encoding.encode_special(text)) for text in (SHORT, LONG))
    ends = [chunk["usage"] for chunk in parts if chunk["choices"][0]["finish_reason"] is not None]
    assert sorted(usage["completion_tokens"] for usage in ends) == lengths
    assert last["usage"]["completion_tokens"] == sum(lengths)
    for usage in (chunk["usage"] for chunk in chunks):
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] == last["usage"]["prompt_tokens"]


@pytest.mark.parametrize("prompts", [["Hi", "A longer prompt"], ["Hi"]], ids=len)
def test_a_chunk_of_a_completion_counts_its_own_choice(encoding: Encoding, prompts: list[str]) -> None:
    body: dict[str, Any] = {"prompt": prompts, "n": 2, "max_tokens": 5, "stream": True}
    with serving(scripted("one two three four five six seven")) as url:
        answer = httpx.post(f"{url}/completions", json={**body, "stream_options": OPTIONS})
    *parts, last = events_in(answer.text.replace("data: [DONE]", ""))
    for chunk in parts:
        (choice,) = chunk["choices"]
        if choice["finish_reason"] is not None:
            assert choice["stop_reason"] is None
            assert chunk["usage"]["completion_tokens"] == 5
            assert chunk["usage"]["prompt_tokens"] == len(encoding.encode(prompts[choice["index"] // 2]))
    assert last["usage"]["completion_tokens"] == 5 * 2 * len(prompts)
