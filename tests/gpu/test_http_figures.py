"""The figures that the measurement over HTTP computes from streams; needs no card."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from tests.doubles.engines.processor_time import seconds_of_threads
from tests.gpu.http_figures import cached_tokens, figures, output_tokens, steady_rate, steady_window
from tests.gpu.http_load import final_events, unchunked
from tests.gpu.http_report import table


def stream(begin: float, deltas: int, seconds_each: float, tokens: int) -> dict[str, Any]:
    times = [begin + 1 + at * seconds_each for at in range(deltas)]
    return {
        "start": begin, "ended": times[-1] + 0.1, "times": times, "counts": [1] * deltas, "ending": "length",
        "error": None, "usage": {"prompt_tokens": 10, "completion_tokens": tokens},
    }  # fmt: skip


def test_the_steady_state_lasts_from_the_last_first_token_to_the_first_end() -> None:
    streams = [stream(0.0, 101, 0.1, 101), stream(2.0, 101, 0.1, 101)]
    window = steady_window(streams)
    assert window == (3.0, 11.0)
    assert abs(steady_rate(streams, window) - 20) < 0.3


def test_tokens_without_text_count_by_the_mean_tokens_per_delta() -> None:
    found = figures([stream(0.0, 100, 0.1, 200)])
    assert found["output_tokens"] == 200
    assert abs(found["steady_tokens_per_s"] - 20) < 0.3
    assert abs(found["gap_ms"]["p50"] - 100) < 1


def test_a_stream_that_ends_early_does_not_end_the_steady_state() -> None:
    streams = [stream(0.0, 101, 0.1, 101), stream(0.0, 11, 0.1, 11)]
    assert steady_window(streams) == (1.0, 11.0)


def test_failed_streams_are_reported_without_figures() -> None:
    failed = {**stream(0.0, 1, 0.1, 0), "times": [], "counts": [], "error": "status 503", "usage": None}
    found = figures([failed])
    assert (found["without_error"], found["errors"]) == (0, ["status 503"])
    report = {"model": "m", "bare": {}, "failed": {"x": "y"}, "parts": {"completions 1": found}}
    assert "status 503" in table(report)


def test_the_chunks_of_a_body_are_joined_and_a_truncated_body_ends_early() -> None:
    assert unchunked(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n") == b"hello world"
    assert unchunked(b"5\r\nhello\r\n6\r\n wo") == b"hello wo"


def test_the_usage_of_both_apis_is_read() -> None:
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 7}
    ended = {"type": "response.incomplete", "response": {"id": "resp_1", "usage": usage, "error": None}}
    found = final_events(f"event: response.incomplete\ndata: {json.dumps(ended)}\n\n")
    assert (found["id"], found["ending"], found["error"]) == ("resp_1", "incomplete", None)
    assert (cached_tokens(found), output_tokens(found | {"counts": []})) == (8, 7)
    chunks = [{"choices": [{"finish_reason": "length"}], "usage": None}]
    chunks += [{"choices": [], "usage": {"completion_tokens": 5}}]
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    found = final_events(f"{lines}data: [DONE]\n\n")
    assert (found["ending"], output_tokens(found | {"counts": []})) == ("length", 5)


def test_processor_time_is_counted_by_thread() -> None:
    computed, seen = threading.Event(), threading.Event()

    def compute() -> None:
        while time.thread_time() < 0.2:
            pass
        computed.set()
        seen.wait(60)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert computed.wait(60)
        used = seconds_of_threads(os.getpid())
    finally:
        seen.set()
        thread.join()
    assert thread.native_id is not None
    assert 0.15 < used[thread.native_id] < 0.3
    assert os.getpid() in used
