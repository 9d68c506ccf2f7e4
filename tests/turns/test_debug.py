"""The debug metadata of a turn: exact texts, ids and log-probabilities, also where tools ran."""

import json
import math
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.turns.debug import debug_metadata
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import TokenLogprob
from tests.doubles.apis.asking import FINAL, NEXT, Asking
from tests.doubles.apis.chat_asking import completion_of
from tests.doubles.serving import scripted
from tests.responses.conftest import PYTHON, with_tool

DEBUG = {"__debug": True}
SUM = "<|channel|>analysis to=python code<|message|>1+1<|call|>"
ANSWER = FINAL.format("Done.")


def parsed(metadata: dict[str, Any], after: str = "") -> tuple[list[int], list[int], list[float | None]]:
    keys = ("__debug_input_ids", "__debug_output_ids", "__debug_output_logprobs")
    inputs, outputs, scores = (json.loads(metadata[key + after]) for key in keys)
    return inputs, outputs, scores


async def test_a_response_shows_the_ids_of_its_texts_and_each_sampled_token_s_log_probability() -> None:
    metadata = (await with_tool(scripted(SUM, ANSWER))(tools=[PYTHON], metadata=DEBUG))["metadata"]
    encoding = load_encoding()
    inputs, outputs, scores = parsed(metadata)
    assert encoding.decode(inputs) == metadata["__debug_input"]
    assert encoding.decode(outputs) == metadata["__debug_output"]
    result = encoding.encode_special(
        "<|start|>python to=assistant<|channel|>analysis<|message|>2 (call 1)<|end|>" + NEXT
    )
    begin = len(encoding.encode_special(SUM))
    end = begin + len(result)
    assert outputs[begin:end] == result
    assert [place for place, score in enumerate(scores) if score is None] == [*range(begin, end)]
    assert all(score <= 0 for score in scores if score is not None)


async def test_log_probabilities_for_debugging_add_none_to_the_answer() -> None:
    ask = Asking(ANSWER)
    response = await ask(metadata=DEBUG)
    assert response["output"][0]["content"][0]["logprobs"] == []
    assert all(not event.get("logprobs") for event in ask.events)
    completion = await completion_of(scripted(ANSWER), metadata=DEBUG)
    assert completion["choices"][0].get("logprobs") is None


async def test_every_choice_of_a_chat_has_its_own() -> None:
    completion = await completion_of(scripted(ANSWER), n=2, metadata=DEBUG)
    first, second = parsed(completion["metadata"]), parsed(completion["metadata"], "_1")
    assert first == second
    assert load_encoding().decode(first[1]) == ANSWER


async def test_without_debugging_no_log_probability_is_computed() -> None:
    for metadata, expected in (({}, None), (DEBUG, 0)):
        run = await Asking(ANSWER).service.start(LOCAL, {"input": "Hi", "metadata": metadata})
        assert run._prepared.sampling.logprobs == expected


@pytest.mark.parametrize("score", [-0.5, -math.inf])
def test_minus_infinity_is_a_number_in_json(score: float) -> None:
    transcript = Transcript([1, 2])
    transcript.prefill([3])
    transcript.sample([4], [TokenLogprob(4, score)])
    found = parsed(debug_metadata(load_encoding(), transcript))
    assert found == ([1, 2], [3, 4], [None, max(score, -9999.0)])
