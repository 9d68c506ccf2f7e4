"""A background response that another server continues still belongs to the key that began it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


async def test_a_continued_run_is_its_owners(tmp_path: Path) -> None:
    settings = Settings(
        store=f"sqlite:{tmp_path / 'store.sqlite'}", api_key_file=key_file(tmp_path), python="off"
    )
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
