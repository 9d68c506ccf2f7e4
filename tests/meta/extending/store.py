"""A plain store keeps the contract of a store, and a conversation goes on from it."""

from __future__ import annotations

from fastapi.testclient import TestClient

from gpt_oss_server.app import create_app
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.plain import PlainStore
from tests.contracts.store_contract import StoreContract
from tests.doubles.serving import scripted

ANSWER = "<|channel|>final<|message|>Hello.<|return|>"


class TestPlainStore(StoreContract):
    async def make(self) -> Store:
        return PlainStore()


def test_a_conversation_goes_on_from_it() -> None:
    with TestClient(create_app(scripted(ANSWER, ANSWER), store=PlainStore())) as client:
        first = client.post("/v1/responses", json={"input": "Hi"}).json()
        assert client.get(f"/v1/responses/{first['id']}").json() == first
        body = {"input": "Hi", "previous_response_id": first["id"]}
        second = client.post("/v1/responses", json=body).json()
    assert second["status"] == "completed"
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
