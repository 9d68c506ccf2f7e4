"""A history is not walked again for each of its turns, and stays right for branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.stores.sql import links
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.doubles.stored import position, texts, turn


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The links that histories were made of, one after the other."""
    found: list[int] = []
    fold = links.history_of

    def counting(chain: Any, **options: Any) -> Any:
        additions = list(chain)
        found.append(len(additions))
        return fold(additions, **options)

    monkeypatch.setattr(links, "history_of", counting)
    return found


async def test_each_turn_adds_to_the_history_before_it(tmp_path: Path, walked: list[int]) -> None:
    store = SqlStore(SqliteDatabase(tmp_path / "store.sqlite"))
    parent = None
    for number in range(30):
        await store.put(turn(f"r{number}", parent))
        parent = await position(store, f"r{number}")
    assert set(walked) == {1}
    assert await texts(store, "r29") == [f"r{number}" for number in range(30)]
    await store.close()


async def test_branches_and_a_new_process_find_the_same_histories(tmp_path: Path, walked: list[int]) -> None:
    path = tmp_path / "store.sqlite"
    store = SqlStore(SqliteDatabase(path))
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("x", "b"), ("y", "a")):
        await store.put(turn(name, parent and await position(store, parent)))
    expected = {"c": ["a", "b", "c"], "x": ["a", "b", "x"], "y": ["a", "y"], "b": ["a", "b"]}
    for name, chain in expected.items():
        assert await texts(store, name) == chain
    await store.close()
    again = SqlStore(SqliteDatabase(path))
    for name, chain in (*expected.items(), *expected.items()):
        assert await texts(again, name) == chain
    assert walked[-4:] == [0, 0, 0, 0], "all are known"
    await again.close()
