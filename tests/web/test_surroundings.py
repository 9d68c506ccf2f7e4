"""The playground behind a path prefix, with keys, and with the other names of events, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import JSONResponse

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

pytestmark = pytest.mark.browser

Visiting = Callable[..., Any]
THINKS = "<|channel|>analysis<|message|>Be kind.<|end|><|start|>assistant"
HELLO = f"{THINKS}<|channel|>final<|message|>Hello.<|return|>"


def behind_prefix(app: Any) -> Any:
    """A proxy that forwards /box/… without the prefix, and nothing else."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith("/box/"):
                await JSONResponse({}, 502)(scope, receive, send)
                return
            path = scope["path"].removeprefix("/box")
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return proxy


def behind_key(app: Any) -> Any:
    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            headers = dict(scope["headers"])
            if headers.get(b"authorization") != b"Bearer sesame":
                error = {"message": "A key is missing.", "code": "invalid_api_key"}
                await JSONResponse({"error": error}, 401)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guard


def test_behind_a_path_prefix(visit: Visiting) -> None:
    with serving(scripted(HELLO), wrap=behind_prefix) as url:
        found = visit(url.removesuffix("/v1") + "/box/v1")
        page = found.open()
        found.ask("Hi")
        assert "Hello." in found.answered().inner_text()
        page.locator(".row.same").wait_for()


def test_with_a_key_that_stays_in_the_tab(visit: Visiting) -> None:
    with serving(scripted(HELLO), wrap=behind_key) as url:
        found = visit(url)
        page = found.open()
        page.get_by_label("The server requires a key").fill("sesame")
        page.get_by_role("button", name="Use this key").click()
        page.get_by_text("Chat with scripted").wait_for()
        found.ask("Hi")
        assert "Hello." in found.answered().inner_text()
        stored = "JSON.stringify(localStorage) + document.cookie"
        assert "sesame" not in page.evaluate(stored)
        assert "sesame" in page.evaluate("JSON.stringify(sessionStorage)")
        # The first visit has no key yet: the browser itself writes refused requests to its console.
        found.problems[:] = [each for each in found.problems if "401" not in each]


def test_with_the_event_names_of_open_responses(visit: Visiting) -> None:
    with serving(scripted(HELLO), Settings(event_names="open-responses")) as url:
        found = visit(url)
        page = found.open()
        found.ask("Hi")
        answer = found.answered()
        answer.get_by_text("Reasoning").click()
        assert page.locator(".fold.analysis .plain").inner_text() == "Be kind."
