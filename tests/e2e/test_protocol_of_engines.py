"""The Responses API of this server on a real engine, next to the engine's own, trial by trial.

Prints the table of docs/engines.md. The engines' own answers are recorded, not judged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from openai import OpenAI

from tests.doubles.apis.protocol_trials import TRIALS, verdict
from tests.doubles.engines.live import KINDS, live_engine
from tests.doubles.server_process import serving

pytestmark = pytest.mark.engines
_FLAGS = {"llama": ("--jinja",), "vllm": ("--enable-auto-tool-choice", "--tool-call-parser", "openai")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_succeeds_where_the_engine_alone_may_fail(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_engine(kind, tmp_path, *_FLAGS[kind], context=4096) as model, serving("--model", model) as own:
        engine = f"{model.removeprefix(f'{kind}:')}/v1"
        with (
            OpenAI(base_url=own.api, api_key="unused", max_retries=0, timeout=300) as ours,
            OpenAI(base_url=engine, api_key="unused", max_retries=0, timeout=300) as theirs,
        ):
            found = {name: (verdict(trial, ours), verdict(trial, theirs)) for name, trial in TRIALS.items()}
    with capsys.disabled():
        sys.stdout.write(f"\n| trial | gpt-oss-server on {kind} | {kind} alone |\n|---|---|---|\n")
        sys.stdout.writelines(f"| {name} | {mine} | {alone} |\n" for name, (mine, alone) in found.items())
    assert {name: mine for name, (mine, _) in found.items() if mine != "ok"} == {}
