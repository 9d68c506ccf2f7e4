"""A store in a file keeps the contract of a store, also after a restart; the app continues from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gpt_oss_server.app import create_app
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.file import FileStore
from gpt_oss_server.stores.sql.sizes import used_bytes
from tests.contracts.store_contract import StoreContract
from tests.doubles.serving import scripted
from tests.doubles.stored import append, conversation, ids, item, known, part, position, stored, texts, turn

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


async def full(path: Path) -> FileStore:
    """A chain whose first turn is deleted, and a response that continues a conversation."""
    store = FileStore(path)
    await store.put(turn("a", None, approvals={"mcpr_1": ("server.tool", "{}")}))
    await store.put(turn("b", await position(store, "a")))
    await store.put(turn("c", await position(store, "b")))
    await store.put(stored("whole"))
    await store.put_conversation(conversation("conv_1"), [part("msg_1")])
    history = known(await store.conversation_history("conv_1"))
    await store.put(turn("d", history.position), append("conv_1", part("msg_2", "msg_3")))
    await store.delete("a")
    return store


@pytest.mark.parametrize("restarts", [1, 3])
async def test_a_restart_keeps_everything(tmp_path: Path, restarts: int) -> None:
    store = await full(tmp_path / "store.json")
    before, parts = await store.get_conversation("conv_1"), await store.conversation_parts("conv_1")
    for _ in range(restarts):
        store = await reopened(store)
    assert await store.get("a") is None
    assert await store.get("whole") == stored("whole")
    assert await texts(store, "c") == ["a", "b", "c"]
    assert await texts(store, "d") == ["msg_1", "d"]
    history = known(await store.history("c"))
    assert history.approvals == {"mcpr_1": ("server.tool", "{}")}
    assert history.session == "session"
    assert await store.get_conversation("conv_1") == before
    assert await store.conversation_parts("conv_1") == parts
    assert await store.item("msg_3") == item("msg_3")
    await store.put(turn("e", history.position))
    assert await texts(store, "e") == ["a", "b", "c", "e"]
    await store.append(append("conv_1", part("msg_1")))
    assert await ids(store, "conv_1") == ["msg_1", "msg_2", "msg_3", "msg_1_again_1"]


async def test_what_is_deleted_is_in_no_file_and_no_link(tmp_path: Path) -> None:
    store = await reopened(await full(tmp_path / "store.json"))
    assert not any(os.scandir(tmp_path))
    for name in ("b", "c", "d", "whole"):
        assert await store.delete(name)
    await store.delete_conversation("conv_1")
    assert await store.database.read(used_bytes) == 0
    store = await reopened(store)
    assert await store.database.read(used_bytes) == 0


async def test_a_restart_with_tighter_bounds_keeps_the_newest(tmp_path: Path) -> None:
    store = await reopened(await full(tmp_path / "store.json"), max_responses=2)
    assert [await store.get(name) is not None for name in ("b", "c", "whole", "d")] == [
        False,
        False,
        True,
        True,
    ]
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
