"""Harmony's messages as JSON: in the library's own form, and complete for any tokens."""

import random
from typing import Any

import openai_harmony
import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.messages import messages_of
from inference.engine import EngineFailed
from tests.doubles.apis.asking import responses_service
from tests.doubles.engines.replay import ReplayEngine, TurnsEngine
from tests.doubles.lints import check_stream

START = "<|start|>"
WHOLE = [
    "user<|message|>2 + 2?<|end|>",
    "user:alice<|message|>Hi <b>東京</b>\n<|end|>",
    "assistant<|channel|>analysis<|message|>Hm.<|end|>",
    "assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
    " assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>".lstrip(),
    "assistant<|channel|>analysis to=python code<|message|>print(1)<|call|>",
    "functions.f to=assistant<|channel|>commentary<|message|>to=nobody<|end|>",
    "assistant<|channel|>final<|message|><|return|>",
]


@pytest.mark.parametrize("text", WHOLE)
def test_they_have_the_librarys_form(encoding: Encoding, text: str) -> None:
    tokens = encoding.encode_special(START + text)
    [message] = messages_of(tokens, encoding)
    library = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    if text.startswith("user:"):
        assert (message["role"], message["name"]) == ("user", "alice")
        return
    [known] = library.parse_messages_from_completion_tokens(tokens)
    expected = known.to_dict()
    if text.startswith("assistant<|channel|>analysis to=python"):
        expected["content_type"] = "code"
    assert message == {"name": None, **expected, "role": expected["role"].value}


def test_any_tokens_become_messages_without_a_failure(encoding: Encoding) -> None:
    rng = random.Random(1)
    for _ in range(300):
        tokens = [rng.choice((200_002, 200_005, 200_006, 200_007, 200_008, 17, 36, 1)) for _ in range(30)]
        for message in messages_of(tokens, encoding):
            assert message["content"][0]["type"] == "text"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_holds_them_on_request(encoding: Encoding, stream: bool) -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    answer = f"{thought}<|channel|>final<|message|>4.<|return|>"
    service = responses_service(TurnsEngine(encoding, answer))
    body: dict[str, Any] = {"input": "2 + 2?", "instructions": "Be brief.", "stream": stream}
    run = await service.start(LOCAL, {**body, "enable_response_messages": True})
    response = check_stream([event async for batch in run.events() for event in batch])
    roles = [message["role"] for message in response["input_messages"]]
    assert roles == ["system", "developer", "user"]
    assert "Be brief." in response["input_messages"][1]["content"][0]["text"]
    output = [(m["channel"], m["content"][0]["text"]) for m in response["output_messages"]]
    assert output == [("analysis", "Hm."), ("final", "4.")]
    plain = await (await service.start(LOCAL, body)).wait()
    assert "input_messages" not in plain


async def test_a_failed_response_holds_the_messages_so_far(encoding: Encoding) -> None:
    tokens = encoding.encode_special("<|channel|>final<|message|>One two three")
    service = responses_service(ReplayEngine(tokens, fails_after=5, error=EngineFailed("gone")))
    response = await (await service.start(LOCAL, {"input": "Hi", "enable_response_messages": True})).wait()
    assert response["status"] == "failed"
    [message] = response["output_messages"]
    assert message["content"] == [{"type": "text", "text": "One two"}]
