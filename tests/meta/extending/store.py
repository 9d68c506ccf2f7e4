"""A store in a file keeps the contract of a store, also after a restart; the app continues from it."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gpt_oss_server.app import create_app
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.file import FileStore
from tests.contracts.store_contract import StoreContract
from tests.doubles.serving import scripted
from tests.doubles.stored import append, conversation, item, known, part, put_turns, texts, turn

ANSWER = "<|channel|>final<|message|>Hello.<|return|>"


class TestFileStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.json"

    async def make(self) -> Store:
        return FileStore(self.path)

    async def make_small(self, most: int) -> Store:
        return FileStore(self.path, max_responses=most, max_conversations=most)


async def reopened(store: FileStore, **bounds: int) -> FileStore:
    await store.close()
    return FileStore(store._path, **bounds)


async def test_a_restart_keeps_everything_within_the_bounds(tmp_path: Path) -> None:
    """A chain whose first turn is deleted, and a response that continues a conversation."""
    store = FileStore(tmp_path / "store.json")
    await put_turns(store, a=None, b="a", c="b")
    await store.put_conversation(conversation("conv_1"), [part("msg_1")])
    history = known(await store.conversation_history("conv_1"))
    await store.put(turn("d", history.position), append("conv_1", part("msg_2", "msg_3")))
    await store.delete("a")
    parts = await store.conversation_parts("conv_1")
    store = await reopened(store)
    assert await store.get("a") is None
    assert await texts(store, "c") == ["a", "b", "c"]
    assert await store.conversation_parts("conv_1") == parts
    assert await store.item("msg_3") == item("msg_3")
    await put_turns(store, e="c")
    assert await texts(store, "e") == ["a", "b", "c", "e"]
    store = await reopened(store, max_responses=2)
    assert [await store.get(name) is not None for name in "bcde"] == [False, False, True, True]
    assert await texts(store, "d") == ["msg_1", "d"]


def test_a_conversation_continues_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    with TestClient(create_app(scripted(ANSWER), store=FileStore(path))) as client:
        first = client.post("/v1/responses", json={"input": "Hi"}).json()
    assert path.stat().st_mode & 0o777 == 0o600
    with TestClient(create_app(scripted(ANSWER), store=FileStore(path))) as client:
        assert client.get(f"/v1/responses/{first['id']}").json() == first
        body = {"input": "Hi", "previous_response_id": first["id"]}
        second = client.post("/v1/responses", json=body).json()
    assert second["status"] == "completed"
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
