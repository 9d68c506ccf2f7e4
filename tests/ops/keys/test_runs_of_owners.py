"""A background response that another server continues still belongs to the key that began it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.keyed import ALICE, MALLORY, key_file
from tests.doubles.serving import scripted
from tests.doubles.waiting import until_found

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
