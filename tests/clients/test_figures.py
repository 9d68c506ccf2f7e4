"""What a load generator measures from outside, and what the server counts of the same requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.clients.running import command, run, run_script
from tests.doubles.observing.figures import Scraped, scraped_at
from tests.doubles.serving import serving

pytestmark = pytest.mark.clients

REQUESTS, PROMPT, OUTPUT, STREAMS = 8, 100, 48, 2
OFFLINE = {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "any"}
APIS = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/responses": "responses"}
SLACK = 0.5  # seconds between the server and a client on a busy machine


def measured(path: str, folder: Path) -> tuple[list[dict[str, Any]], Scraped]:
    """guidellm's successful requests, and the server's figures after them."""
    guidellm = command("guidellm", "guidellm")
    with serving(inference.load("tiny"), Settings(model="tiny")) as api:
        run_script("byte_tokenizer.py", folder, api, "guidellm")
        url, report = api.removesuffix("/v1"), folder / "report.json"
        options = {
            "--backend": f"kind=openai_http,target={url},model=tiny,request_format={path}",
            "--tokenizer": f"kind=hf_auto,model={folder / 'tokenizer'}",
            "--data": f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}",
            "--profile": f"kind=concurrent,streams={STREAMS}",
            "--constraint": f"kind=max_requests,count={REQUESTS}",
            "--output": f"kind=json,path={report}",
        }
        arguments = [text for option in options.items() for text in option]
        before = scraped_at(url)
        assert before.own("output_tokens_total") == 0
        done = run([guidellm, "run", *arguments, "--disable-console-interactive"], folder, env=OFFLINE)
        assert done.returncode == 0, done.stderr[-3000:]
        figures = scraped_at(url)
    [benchmark] = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    requests: list[dict[str, Any]] = benchmark["requests"]["successful"]
    assert len(requests) == REQUESTS
    return requests, figures


def mean(figures: Scraped, name: str, **labels: str) -> float:
    return figures.own(f"{name}_sum", **labels) / figures.own(f"{name}_count", **labels)


@pytest.mark.parametrize("path", APIS)
def test_guidellm_and_the_figures_agree(path: str, tmp_path: Path) -> None:
    """On tokens to the token; on times within what lies between the engine and the client."""
    requests, figures = measured(path, tmp_path)
    api = APIS[path]
    assert figures.own("turns_total", api=api) == REQUESTS
    assert figures.own("output_tokens_total", api=api) == sum(each["output_tokens"] for each in requests)
    assert figures.own("prompt_tokens_total", api=api) == sum(each["prompt_tokens"] for each in requests)
    seen_first = sum(each["time_to_first_token_ms"] for each in requests) / REQUESTS / 1000
    first = mean(figures, "time_to_first_token_seconds", api=api)
    # The server counts from the first token; guidellm sees an answer's text, which the reasoning precedes.
    assert first <= seen_first
    assert api != "completions" or seen_first <= first + SLACK
    seen_whole = sum(each["request_latency"] for each in requests) / REQUESTS
    whole = mean(figures, "request_duration_seconds", api=api)
    assert whole <= seen_whole <= whole + SLACK
