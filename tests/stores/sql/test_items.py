"""Pages of items whose rows an earlier version wrote: right, at the cost of reading these rows whole.

And what the ids of another owner's items cost: nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.pages import UnknownItem, Wanted
from gpt_oss_server.stores.sql.database import Row, Transaction, Value
from gpt_oss_server.stores.sql.items import item_of_conversation
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.doubles.stored import append, conversation, item, part


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_of_rows_without_places(tmp_path: Path, newest_first: bool) -> None:
    database = SqliteDatabase(tmp_path / "store.sqlite")
    store = SqlStore(database)
    await store.put_conversation(conversation("conv_1"), [part("m0", "m1"), part("m2", "m3", "m4")])
    await store.put(StoredResponse({"id": "resp_1", "output": [item("out")]}, (item("a"), item("b"))))
    for table, column in (("parts", "places"), ("responses", "places"), ("items", "place")):
        sql = f"UPDATE {table} SET {column} = NULL"
        assert await database.write(lambda tx, sql=sql: tx.run(sql))
    await store.append(append("conv_1", part("m5", "m6")))

    ordered = [f"m{number}" for number in range(7)][:: -1 if newest_first else 1]
    for after in (None, *ordered):
        found = await store.conversation_page("conv_1", Wanted(3, after, newest_first=newest_first))
        assert found is not None
        rest = ordered[0 if after is None else ordered.index(after) + 1 :]
        assert [each["id"] for each in found.items] == rest[:3]
        assert found.has_more == (len(rest) > 3)
    assert await store.conversation_item("conv_1", "m3") == item("m3")
    page = await store.input_page("resp_1", Wanted(1, newest_first=newest_first))
    assert page is not None
    assert ([each["id"] for each in page.items], page.has_more) == (["b" if newest_first else "a"], True)
    with pytest.raises(UnknownItem):
        await store.input_page("resp_1", Wanted(1, "out"))
    await store.close()


async def test_the_items_of_other_owners_cost_nothing(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "store.sqlite")
    store = SqlStore(database)
    other = store.of("other")
    for number in range(20):
        await other.put(StoredResponse({"id": f"resp_{number}", "output": []}, (item("shared"),)))
    await store.put_conversation(conversation("conv_1"), [part("shared"), part("own")])
    of_shared, of_own = await database.read(
        lambda tx: (_queries_for_item(tx, "shared"), _queries_for_item(tx, "own"))
    )
    assert of_shared == of_own
    await store.close()


def _queries_for_item(tx: Transaction, item_id: str) -> int:
    """How many queries read the item of the conversation."""
    counting = _Counting(tx)
    assert item_of_conversation(counting, "conv_1", "", item_id) == item(item_id)
    return counting.queries


class _Counting:
    def __init__(self, tx: Transaction) -> None:
        self._tx, self.queries = tx, 0
        self.run, self.run_each, self.announce = tx.run, tx.run_each, tx.announce

    def rows(self, sql: str, *values: Value) -> list[Row]:
        self.queries += 1
        return self._tx.rows(sql, *values)
