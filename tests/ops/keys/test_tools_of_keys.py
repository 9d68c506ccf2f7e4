"""Tools that a key may not use, by every way in which a request can name one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.serving import scripted

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
WEB = {"type": "web_search"}
MCP = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/mcp"}
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    keys = tmp_path / "keys"
    keys.write_text("sk-none tools=none\nsk-python tools=python\nsk-web tools=browser\nsk-all\n")
    pages = tmp_path / "pages"
    pages.mkdir()
    tools = {"python": "unsafe-local", "browser": f"local:{pages}", "allow_private_hosts": True}
    return Api(scripted(HELLO), Settings(api_key_file=str(keys), **tools))  # type: ignore[arg-type]


async def status(api: Api, key: str, path: str, **body: Any) -> tuple[int, str | None]:
    answer = await api.client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
    return answer.status_code, (answer.json().get("error") or {}).get("code")


REFUSED = (403, "tool_not_allowed")


@pytest.mark.parametrize(
    ("tool", "allowed"),
    [(CODE, {"sk-python", "sk-all"}), (WEB, {"sk-web", "sk-all"})],
    ids=["python", "browser"],
)
async def test_a_hosted_tool_is_for_some_keys(api: Api, tool: dict[str, Any], allowed: set[str]) -> None:
    for key in ("sk-none", "sk-python", "sk-web", "sk-all"):
        expected = (200, None) if key in allowed else REFUSED
        assert await status(api, key, "/responses", input="Hi", tools=[tool]) == expected
        assert await status(api, key, "/chat/completions", messages=MESSAGES, tools=[tool]) == expected


async def test_servers_of_requests_are_for_the_keys_that_may_use_mcp(api: Api) -> None:
    for key in ("sk-none", "sk-python", "sk-web"):
        assert await status(api, key, "/responses", input="Hi", tools=[MCP]) == REFUSED
    assert (await status(api, "sk-all", "/responses", input="Hi", tools=[MCP]))[1] != "tool_not_allowed"


async def test_other_ways_to_a_tool_are_closed_too(api: Api) -> None:
    builtin = {"messages": MESSAGES, "chat_template_kwargs": {"builtin_tools": ["python"]}}
    for key, path, body in (
        ("sk-web", "/containers", {"name": "data"}),
        ("sk-web", "/chat/completions", builtin),
        ("sk-python", "/chat/completions", {"messages": MESSAGES, "web_search_options": {}}),
        ("sk-none", "/responses/input_tokens", {"input": "Hi", "tools": [CODE]}),
    ):
        assert await status(api, key, path, **body) == REFUSED


async def test_a_search_that_a_client_offers_to_every_server_is_left_out(api: Api) -> None:
    """Codex sends it whether or not a server has a browser."""
    optional = {"type": "web_search", "external_web_access": True}
    assert await status(api, "sk-none", "/responses", input="Hi", tools=[optional]) == (200, None)


async def test_the_sentence_names_the_tool(api: Api) -> None:
    body, key = {"input": "Hi", "tools": [CODE]}, {"X-Api-Key": "sk-none"}
    error = (await api.client.post("/responses", json=body, headers=key)).json()["error"]
    assert "may not use the tool python" in error["message"]
    assert error["param"] == "tools"
