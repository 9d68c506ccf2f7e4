"""A store with an archive keeps the contract of a store; the app's answers are in the archive."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gpt_oss_server.app import create_app
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.archiving import ArchivingStore
from tests.contracts.store_contract import StoreContract
from tests.doubles.serving import scripted

ANSWER = "<|channel|>final<|message|>Hello.<|return|>"


class TestArchivingStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "archive.jsonl"

    async def make(self) -> Store:
        return ArchivingStore(self.path)

    async def make_small(self, most: int) -> Store:
        return ArchivingStore(self.path, max_responses=most, max_conversations=most)


def test_answers_outlive_their_deletion_in_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "archive.jsonl"
    with TestClient(create_app(scripted(ANSWER), store=ArchivingStore(path))) as client:
        first = client.post("/v1/responses", json={"input": "Hi"}).json()
        body = {"input": "Hi", "previous_response_id": first["id"]}
        second = client.post("/v1/responses", json=body).json()
        assert client.delete(f"/v1/responses/{first['id']}").status_code == 200
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["id"] for each in kept] == [first["id"], second["id"]]
    assert kept[1]["output"] == second["output"]
    assert path.stat().st_mode & 0o777 == 0o600
