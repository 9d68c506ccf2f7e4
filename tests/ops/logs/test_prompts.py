"""Prompts and outputs in the log, where the operator wants them."""

from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

PROMPTED: dict[str, dict[str, Any]] = {
    "responses": {"input": "the tide tables"},
    "chat/completions": {"messages": [{"role": "user", "content": "the tide tables"}], "n": 2},
    "completions": {"prompt": "the tide tables", "max_tokens": 3},
}


@pytest.mark.parametrize("path", PROMPTED)
def test_a_prompt_is_logged_when_it_arrives_with_its_sampling(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    body = {**PROMPTED[path], "temperature": 0.25, "stream": True}
    engine = scripted("<|channel|>final<|message|>Hello!<|return|>", loop=True, tokens_per_second=5)
    headers = {"x-request-id": "req_of_ali"}
    with (
        serving(engine, Settings(log_prompts=True)) as url,
        httpx.stream("POST", f"{url}/{path}", json=body, headers=headers) as answer,
    ):
        next(answer.iter_lines())
        texts = [record.getMessage() for record in caplog.records]
        arrived = [text for text in texts if "of req_of_ali: " in text and "prompt: " in text]
        assert len(arrived) == body.get("n", 1)
        assert all("temperature=0.25" in text and "the tide tables" in text for text in arrived)
    outputs = [record for record in caplog.records if ": output: " in record.getMessage()]
    assert len(outputs) == body.get("n", 1), "also of a client that left"
