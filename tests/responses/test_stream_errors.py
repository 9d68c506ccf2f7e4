"""A failure is one `response.failed` with a code that clients act on, or a 400 before the stream."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from inference.engine import ContextOverflow, EngineBusy, EngineClosed, EngineFailed
from tests.doubles.apis.services import responses_service
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import StreamLint
from tests.doubles.serving import VOCABULARY, serving

OUTPUT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>One two three"
BROKEN: list[tuple[Exception, str, str]] = [
    (EngineClosed("closed"), "server_is_overloaded", "again"),
    (EngineBusy(9, 1.0), "server_is_overloaded", "again"),
    (ContextOverflow(9_000, 8_192), "context_length_exceeded", "9000"),
    (EngineFailed("the card fell out"), "server_error", "the card fell out"),
    (RuntimeError("a defect of the server"), "server_error", "log"),
]


@pytest.mark.parametrize(("error", "code", "part"), BROKEN, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("after", [0, 2, 5, 9, 12])
async def test_an_error_in_mid_stream_fails_the_response_with_its_code(
    encoding: Encoding, error: Exception, code: str, part: str, after: int
) -> None:
    service = responses_service(ReplayEngine(encoding.encode_special(OUTPUT), fails_after=after, error=error))
    options: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    run = await service.start(LOCAL, {"input": "hi", **options})
    events = [event async for batch in run.events() for event in batch]
    lint = StreamLint(sdk_types=False)  # the SDK's types do not list these codes
    for event in events:
        lint.feed(event)
    failed = [event for event in events if event["type"] == "response.failed"]
    assert failed == events[-1:]
    reported = failed[0]["response"]["error"]
    assert reported["code"] == code
    assert part in reported["message"]
    assert "a defect" not in reported["message"]
    assert failed[0]["response"]["usage"]["output_tokens"] == after
    assert not [event for event in events if event["type"] == "error"]


def test_a_prompt_that_is_too_long_is_refused_before_generation() -> None:
    script = parse_script({"turns": ["<|channel|>final<|message|>Hi<|return|>"]}, VOCABULARY)
    with (
        serving(ScriptedEngine(script, context=200)) as url,
        OpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(BadRequestError) as refused:
            client.responses.create(model="scripted", input="word " * 300)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "input"
        # In a stream the response fails instead: agents read its code and shorten the conversation.
        stream = client.responses.create(model="scripted", input="word " * 300, stream=True)
        events = [event.to_dict() for event in stream]
    failed = events[-1]["response"]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert failed["error"]["code"] == "context_length_exceeded"
    assert "context" in failed["error"]["message"]
    assert failed["output"] == []
