"""For any output of the model, truncated anywhere, the event stream is well-formed and loses nothing."""

from __future__ import annotations

import random

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineFailed
from tests.doubles.apis.bodies import BODY
from tests.doubles.apis.services import responses_service
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import StreamLint, check_stream
from tests.doubles.random_tests.seeds import seeds


async def events_of(engine: ReplayEngine, encoding: Encoding, **fields: object) -> list[dict[str, object]]:
    service = responses_service(engine, encoding=encoding)
    run = await service.start(LOCAL, {**BODY, "store": False, **fields})
    return [event async for batch in run for event in batch]


@pytest.mark.parametrize("seed", seeds(6, proofs=40))
async def test_legal_completions_cut_at_every_token(encoding: Encoding, seed: int) -> None:
    rng = random.Random(seed)
    tokens = encoded(encoding, rng)
    engine = ReplayEngine(tokens, per_step=rng.choice((1, 3, 16)))
    for cut in range(1, len(tokens) + 1):
        response = check_stream(await events_of(engine, encoding, max_output_tokens=cut))
        expected = "completed" if cut == len(tokens) else "incomplete"
        assert response["status"] == expected
        assert response["usage"]["output_tokens"] == cut
        if expected == "incomplete":
            assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert engine.open_generations == 0


@pytest.mark.parametrize("seed", seeds(1, proofs=20))
async def test_a_thousand_mutated_completions_complete(encoding: Encoding, seed: int) -> None:
    rng = random.Random(1_000 + seed)
    for _ in range(1_000):
        tokens = mutated(encoded(encoding, rng), rng)
        engine = ReplayEngine(tokens, per_step=8)
        events = await events_of(engine, encoding)
        lint = StreamLint(sdk_types=False)
        for event in events:
            lint.feed(event)
        assert lint.close()["status"] == "completed"


@pytest.mark.parametrize("seed", seeds(4, proofs=25))
async def test_a_failure_after_any_token_is_one_failed_response(encoding: Encoding, seed: int) -> None:
    rng = random.Random(2_000 + seed)
    tokens = encoded(encoding, rng)
    for broken in (EngineFailed("out of memory"), RuntimeError("a defect")):
        for after in range(len(tokens) + 1):
            engine = ReplayEngine(tokens, fails_after=after, error=broken)
            response = check_stream(await events_of(engine, encoding))
            assert response["status"] == "failed"
            assert response["error"]["code"] == "server_error"
            assert "a defect" not in response["error"]["message"]
            assert engine.open_generations == 0


async def test_each_token_with_text_is_one_delta_event(encoding: Encoding) -> None:
    text = "The quick brown fox jumps over the lazy dog."
    tokens = encoding.encode_special(f"<|channel|>final<|message|>{text}<|return|>")
    for per_step in (1, 5, 100):
        events = await events_of(ReplayEngine(tokens, per_step=per_step), encoding)
        deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
        assert len(deltas) == len(encoding.encode(text))
