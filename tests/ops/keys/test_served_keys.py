"""What a key may use: its tools, by all ways in which a request names one, and its runs on another server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.keyed import ALICE, MALLORY, key_file
from tests.doubles.serving import scripted
from tests.doubles.waiting import until_found

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


LONG = "<|channel|>final<|message|>" + "word " * 600 + "<|return|>"


async def get(api: Api, key: str, path: str) -> tuple[int, Any]:
    answer = await api.client.get(path, headers={"Authorization": f"Bearer {key}"})
    is_json = answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json() if is_json else answer.text


SHOP = "sk-of-shop-6f1ed002ab5595859014ebf0951522d9"


async def test_whoever_continues_a_run_serves_it_with_the_limits_and_tools_of_its_key(tmp_path: Path) -> None:
    keys = key_file(tmp_path, f"{SHOP} name=shop rpm=60 concurrent=3 kernels=1 stored=4MiB tools=browser")
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", api_key_file=keys, python="off")
    first = Api(scripted(LONG, tokens_per_second=200), settings)
    sent = {"X-Api-Key": SHOP, "x-session-id": "s1"}
    body = {"input": "Hi", "background": True}
    begun = (await first.client.post("/responses", json=body, headers=sent)).json()
    began = first.service.background.running(begun["id"], "shop")
    assert began is not None
    await first.service.close()

    second = Api(scripted(LONG, tokens_per_second=2_000), settings)
    second.service.continuing.start()

    async def running() -> Run | None:
        return second.service.background.running(begun["id"], "shop")

    run = await until_found(running, lambda found: found is not None)
    assert run is not None
    assert run.caller.access == replace(began.caller.access, digest=b"")
    assert run.caller.access.limits.kernels == 1
    assert (run.caller.client, run.caller.labels) == (began.caller.client, began.caller.labels)
    assert run.caller.labels["x-session-id"] == "s1"
    await second.service.close()


async def test_a_continued_run_is_its_owners(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store.sqlite'}"
    settings = Settings(store=store, api_key_file=key_file(tmp_path), python="off")
    first = Api(scripted(LONG, tokens_per_second=200), settings)
    body = {"input": "Hi", "background": True}
    begun = (await first.client.post("/responses", json=body, headers={"X-Api-Key": ALICE})).json()
    place = f"/responses/{begun['id']}"

    async def output() -> list[Any]:
        return list((await first.service.background.logs.logged(begun["id"]))[3:])  # type: ignore[attr-defined]

    await until_found(output, bool)
    await first.service.close()  # which hands its runs over

    second = Api(scripted(LONG, tokens_per_second=2_000), settings)
    assert (await get(second, ALICE, place))[1]["status"] == "in_progress"
    assert (await get(second, MALLORY, place))[0] == 404
    second.service.continuing.start()

    async def status() -> str:
        return str((await get(second, ALICE, place))[1]["status"])

    assert await until_found(status, lambda found: found == "completed")
    for path in (place, f"{place}?stream=true", f"{place}/input_items"):
        assert (await get(second, MALLORY, path))[0] == 404
        assert (await get(second, ALICE, path))[0] == 200
    _, events = await get(second, ALICE, f"{place}?stream=true")
    assert events.rstrip().splitlines()[-1].startswith('data: {"type":"response.completed"')
    continued = {"input": "Go on", "previous_response_id": begun["id"]}
    for key, expected in ((MALLORY, 400), (ALICE, 200)):
        answer = await second.client.post("/responses", json=continued, headers={"X-Api-Key": key})
        assert answer.status_code == expected
    await second.service.close()
