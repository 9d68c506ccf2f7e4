"""A failure is one `response.failed` with a code that clients act on, or a 400 before the stream."""

from __future__ import annotations

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from inference.engine import ContextOverflow, EngineBusy, EngineClosed, EngineFailed
from tests.doubles.apis.asking import Asking
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import VOCABULARY
from tests.responses.conftest import Make

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
    ask = Asking(engine=ReplayEngine(encoding.encode_special(OUTPUT), fails_after=after, error=error))
    response = await ask(include=["reasoning.encrypted_content"], reasoning={"summary": "auto"})
    kinds = [event["type"] for event in ask.events]
    assert (kinds.count("response.failed"), kinds[-1]) == (1, "response.failed")
    assert "error" not in kinds
    assert response["error"]["code"] == code
    assert part in response["error"]["message"]
    assert "a defect" not in response["error"]["message"]
    assert response["usage"]["output_tokens"] == after


async def test_a_prompt_that_is_too_long_is_refused_before_generation(api: Make) -> None:
    script = parse_script({"turns": ["<|channel|>final<|message|>Hi<|return|>"]}, VOCABULARY)
    here = api(ScriptedEngine(script, context=200))
    refused = await here.refused("/responses", input="word " * 300)
    assert (refused["status"], refused["code"], refused["param"]) == (400, "context_length_exceeded", "input")
    # In a stream the response fails instead: agents read its code and shorten the conversation.
    events = await here.streamed(input="word " * 300)
    kinds = ["response.created", "response.in_progress", "response.failed"]
    assert [event["type"] for event in events] == kinds
    failed = events[-1]["response"]
    assert (failed["error"]["code"], failed["output"]) == ("context_length_exceeded", [])
    assert "context" in failed["error"]["message"]
