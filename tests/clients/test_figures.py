"""What a load generator measures from outside, and what the server counts of the same requests."""

from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.clients.test_evaluations import REQUESTS, guidellm
from tests.doubles.observing.figures import Scraped, scraped_at
from tests.doubles.serving import serving

pytestmark = pytest.mark.clients

APIS = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/responses": "responses"}
SLACK = 0.5  # seconds between the server and a client on a busy machine


def measured(path: str, folder: Path) -> tuple[list[dict[str, Any]], Scraped]:
    """guidellm's successful requests, and the server's figures after them."""
    with serving(inference.load("tiny"), Settings(model="tiny")) as api:
        url = api.removesuffix("/v1")
        assert scraped_at(url).own("output_tokens_total") == 0
        return guidellm(path, api, folder), scraped_at(url)


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
