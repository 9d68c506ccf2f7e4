"""The summary of a compaction: its form, its length, and where the operator can read it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.client_tools import TOOL
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.engines.summariser import ANSWER, SUMMARY, Summariser
from tests.doubles.harmony.sampling import allowed
from tests.doubles.lints import check_stream

Make = Callable[..., Api]
LONG = "filler " * 1_500
MANAGED: list[dict[str, Any]] = [{"type": "compaction", "compact_threshold": 1_000}]


async def test_a_summary_is_about_as_long_as_what_it_replaces_at_most(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    for words in (1, 1_500, 20_000):
        item = {"role": "assistant", "content": "filler " * words}
        await here.create(input=[item, {"type": "compaction_trigger"}])
    short, middle, long = (sampling.max_tokens for sampling in engine.samplings)
    assert (short, long) == (256, 8_192)
    assert middle is not None
    assert 1_500 < middle < 1_520


async def test_a_grammar_binds_a_summary_to_one_final_message(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    engine.info = replace(engine.info, enforces_grammar=True)
    here = api(engine)
    await here.create(input=[{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}], tools=[TOOL])
    grammar = engine.samplings[0].grammar
    assert grammar is not None
    state = grammar.start()
    channel, *final = encoding.encode_special("<|channel|>final<|message|>")
    assert [token for token, may in enumerate(allowed(state.mask())) if may] == [channel]
    for token in (channel, *final, *encoding.encode("They grow roses.")):
        state.accept(token)
    ends = encoding.encode_special("<|return|><|end|><|call|><|start|><|channel|>")
    assert [bool(allowed(state.mask())[token]) for token in ends] == [True, False, False, False, False]


async def test_a_summary_that_repeats_itself_ends(api: Make, encoding: Encoding) -> None:
    text = "<|channel|>final<|message|>They grow roses." + " and so on" * 2_000
    engine = ReplayEngine(encoding.encode_special(text))
    engine.info = replace(engine.info, loops=True)
    items = [{"role": "assistant", "content": LONG}, {"type": "compaction_trigger"}]
    response = check_stream(await api(engine).streamed(input=items))
    assert (response["status"], len(response["output"])) == ("completed", 1)
    assert response["usage"]["output_tokens"] < 300


async def test_the_log_and_the_debug_metadata_show_compactions(
    api: Make, encoding: Encoding, caplog: pytest.LogCaptureFixture
) -> None:
    here = Api(Summariser(encoding), Settings(log_prompts=True))
    items = [{"role": "assistant", "content": LONG}, {"role": "user", "content": "My question?"}]
    with caplog.at_level(logging.INFO):
        response = await here.create(input=items, context_management=MANAGED, metadata={"__debug": "true"})
    metadata = response["metadata"]
    assert "Write the summary, and nothing else." in metadata["__debug_compaction_input"]
    assert metadata["__debug_compaction_output"] == SUMMARY.format("They grow roses.")
    assert metadata["__debug_output"] == ANSWER.format("Fine.")
    assert f"{response['id']} compaction output: {SUMMARY.format('They grow roses.')}" in caplog.text
    assert f"{response['id']} output: {ANSWER.format('Fine.')}" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        compacted = await here.post("/responses/compact", model=None, input="Hi")
    assert f"{compacted['id']} compaction output: {SUMMARY.format('They grow roses.')}" in caplog.text
    caplog.clear()
    quiet = api(Summariser(encoding))
    with caplog.at_level(logging.INFO):
        await quiet.post("/responses/compact", model=None, input="Hi")
    assert "roses" not in caplog.text
