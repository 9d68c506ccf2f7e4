"""The labels of a request reach the engine: its id, its session, its trace."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http.callers import make_caller
from gpt_oss_server.settings import Settings
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import serving

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_requests_labels_reach_the_engine(encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special("<|channel|>final<|message|>Hi<|return|>"))
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    sent = {"x-request-id": "mine", "x-session-id": "s1", "traceparent": TRACE, "cookie": "secret"}
    with serving(engine, Settings()) as base:
        for path, body in (("responses", {"input": "hi"}), ("chat/completions", chat)):
            httpx.post(f"{base}/{path}", json=body, headers=sent).raise_for_status()
            answered = httpx.post(f"{base}/{path}", json={**body, "prompt_cache_key": "k"})
            last = engine.samplings[-1].labels
            assert last["x-request-id"] == answered.headers["x-request-id"]
            if path == "responses":
                assert last["x-session-id"] == "k"
            assert engine.samplings[-2].labels == {name: sent[name] for name in sent if name != "cookie"}


@pytest.mark.parametrize("value", ["", " a", "a\u00e9", "x" * 600, "a\tb"])
def test_values_that_could_break_a_request_are_left_out(value: str) -> None:
    scope = {"headers": [(b"x-session-id", value.encode("utf-8")), (b"traceparent", b"ok")]}
    assert make_caller(scope, "x-request-id", "1").labels == {"x-request-id": "1", "traceparent": "ok"}
    assert Caller().labels_with(value) == {}


@pytest.mark.parametrize(
    ("labels", "session", "expected"),
    [({}, None, None), ({}, "k", "k"), ({"x-session-id": "s"}, "k", "s")],
)
def test_a_clients_own_session_comes_first(
    labels: Mapping[str, str], session: str | None, expected: str | None
) -> None:
    assert Caller(labels=labels).labels_with(session).get("x-session-id") == expected
