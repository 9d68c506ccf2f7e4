"""Recorded requests of real clients (with long texts shortened) are answered.

The clients themselves run with `make clients`; this runs everywhere.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic.types.beta import BetaMessage
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.doubles.clients.running import HELLO, Recorder, call, recorded
from tests.doubles.serving import scripted

RECORDED = sorted((Path(__file__).resolve().parent / "requests").glob("*.json"))
ANSWERS: dict[str, Any] = {
    "/v1/responses": Response,
    "/v1/chat/completions": ChatCompletion,
    "/v1/messages": BetaMessage,
}
REQUESTS = [
    pytest.param(each["path"], each["body"], id=f"{path.stem}-{number}")
    for path in RECORDED
    for number, each in enumerate(json.loads(path.read_text(encoding="utf-8")))
]
# The answer of every turn: a JSON object if the request wants one.
HELLO_AS_JSON = '<|channel|>final<|message|>{"city":"Paris"}<|return|>'
# The calls of requests that force one, by the declaration in the prompt.
_PARIS = {"city": "Paris"}
_ARGUMENTS = dict.fromkeys(("final_result", "PartialPlace", "Place", "json"), _PARIS)
_ARGUMENTS["final_answer"] = {"answer": "It is sunny in Paris."}
CALLS = [{"when": f"type {name} = ", "text": call(name, given)} for name, given in _ARGUMENTS.items()]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Recorder]]:
    in_json = {"when": r"# Response Formats|A city\?", "text": HELLO_AS_JSON}
    with recorded(scripted(*CALLS, in_json, HELLO)) as running:
        yield running


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_a_recorded_request_is_answered(
    path: str, body: dict[str, Any], server: tuple[str, Recorder]
) -> None:
    url, recorder = server
    recorder.exchanges.clear()
    answer = httpx.post(url.removesuffix("/v1") + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    recorder.check()
    [exchange] = recorder.exchanges
    assert exchange.is_stream == bool(body.get("stream"))
    if exchange.is_stream:
        return
    whole: Any = ANSWERS[path].model_validate(answer.json())
    assert path != "/v1/responses" or whole.status == "completed"
