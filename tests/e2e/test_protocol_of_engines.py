"""The Responses API of this server on a real engine, next to the engine's own, trial by trial.

Prints the table of docs/engines.md. The engines' own answers are recorded, not judged.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, OpenAI

from tests.contracts.embedded_model_contract import EmbeddedModelContract
from tests.doubles.engines.live import KINDS, live_engine
from tests.doubles.server_process import serving

pytestmark = pytest.mark.engines
CONTRACT = EmbeddedModelContract()
TRIALS: dict[str, Callable[[OpenAI], None]] = {
    "stream helper: text, reasoning": CONTRACT.test_the_stream_helper_accumulates_the_final_response,
    "stream helper: function call": CONTRACT.test_the_stream_helper_accumulates_a_call,
    "every event of a call's stream": CONTRACT.test_a_streamed_call_is_well_formed,
    "call, result sent back, answer": CONTRACT.test_a_function_is_called_and_its_result_used,
    "`previous_response_id`": CONTRACT.test_the_model_remembers_a_name_over_two_turns,
    "truncated after 1 token": partial(CONTRACT.test_a_truncated_answer_is_incomplete, limit=1),
    "truncated after 12 tokens": partial(CONTRACT.test_a_truncated_answer_is_incomplete, limit=12),
    '`tool_choice: "required"`, or one function': CONTRACT.test_tool_choice_is_obeyed,
    '`tool_choice: "none"`': CONTRACT.test_a_tool_choice_of_none_is_obeyed,
    "strict `json_schema`": CONTRACT.test_an_answer_follows_a_schema,
    "log-probabilities": CONTRACT.test_every_token_of_an_answer_has_a_log_probability,
    "`usage`, reasoning counted": CONTRACT.test_usage_counts_the_reasoning,
}
_FLAGS = {"llama": ("--jinja",), "vllm": ("--enable-auto-tool-choice", "--tool-call-parser", "openai")}


def verdict(trial: Callable[[OpenAI], None], client: OpenAI) -> str:
    """ "ok", or what is wrong, in one line."""
    try:
        trial(client)
    except APIStatusError as error:
        problem = f"{error.status_code}: {error.message}"
    except Exception as error:  # whatever an SDK raises over an answer that it does not understand
        problem = f"{type(error).__name__}: {error}"
    else:
        return "ok"
    return " ".join(problem.split()).replace("|", "¦")[:160]


def sdk(url: str) -> Any:
    return OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=300)


@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_succeeds_where_the_engine_alone_may_fail(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        live_engine(kind, tmp_path, *_FLAGS[kind], context=4096) as model,
        serving("--model", model) as own,
        sdk(own.api) as ours,
        sdk(f"{model.removeprefix(f'{kind}:')}/v1") as theirs,
    ):
        found = {name: (verdict(trial, ours), verdict(trial, theirs)) for name, trial in TRIALS.items()}
    with capsys.disabled():
        sys.stdout.write(f"\n| trial | gpt-oss-server on {kind} | {kind} alone |\n|---|---|---|\n")
        sys.stdout.writelines(f"| {name} | {mine} | {alone} |\n" for name, (mine, alone) in found.items())
    assert {name: mine for name, (mine, _) in found.items() if mine != "ok"} == {}
