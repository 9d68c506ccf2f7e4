"""The contract of every store of responses. A store's test module subclasses this and creates the store."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpt_oss_server.stores.base import Append, ConversationPart, Item, Store, StoredResponse
from gpt_oss_server.stores.chain import Addition, Position, UnknownParent
from tests.contracts.owners_contract import OwnersContract
from tests.contracts.pages_contract import PagesContract
from tests.contracts.traces_contract import TracesContract
from tests.doubles.stored import (
    Visited,
    append,
    conversation,
    ids,
    item,
    known,
    own_segment,
    part,
    position,
    put_turns,
    segment,
    stored,
    texts,
    turn,
)


class StoreContract(OwnersContract, PagesContract, TracesContract):
    async def make(self) -> Store:
        raise NotImplementedError

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = await self.make()
        yield store
        await store.close()

    async def make_small(self, most: int) -> Store:
        """A store that keeps at most `most` responses and `most` conversations."""
        raise NotImplementedError

    async def settle(self, store: Store) -> None:
        """Called before what is evicted is looked for: a store that evicts between requests does so now."""

    async def test_a_response_is_kept_whole_until_it_is_replaced_or_deleted(self, store: Store) -> None:
        for name in ("resp_1", "resp_2"):
            await store.put(stored(name, text="old"))
        await store.put(new := stored("resp_1", text="new"))
        assert await store.get("resp_1") == new
        assert await store.delete("resp_1") is True
        for unknown in ("resp_1", "resp_3"):
            assert await store.get(unknown) is None
            assert await store.history(unknown) is None
            assert await store.delete(unknown) is False
        assert await store.get("resp_2") == stored("resp_2", text="old")

    async def test_items_of_responses_are_found_by_their_ids(self, store: Store) -> None:
        response, results = {"id": "resp_1", "output": [item("msg_2")]}, {"msg_2": "all of it"}
        await store.put(StoredResponse(response, (item("msg_1"),), results=results))
        assert await store.item("msg_1") == item("msg_1")
        assert await store.item("msg_2") == item("msg_2")
        assert await store.item("msg_3") is None
        assert await store.result("msg_2") == "all of it"
        assert await store.result("msg_1") is None
        await store.delete("resp_1")
        assert await store.item("msg_1") is None
        assert await store.result("msg_2") is None

    async def test_the_newest_stored_item_with_an_id_is_found(self, store: Store) -> None:
        for number in range(3):
            await store.put(StoredResponse({"id": f"resp_{number}", "output": [item("msg", str(number))]}))
        assert await store.item("msg") == item("msg", "2")
        await store.delete("resp_2")
        assert await store.item("msg") == item("msg", "1")
        await store.delete("resp_0")
        assert await store.item("msg") == item("msg", "1")
        await store.delete("resp_1")
        assert await store.item("msg") is None

    async def test_a_history_contains_the_whole_chain_in_order(self, store: Store) -> None:
        parent = None
        for name in ("a", "b", "c"):
            await store.put(turn(name, parent, recipients={f"call_{name}": f"functions.{name}"}))
            parent = await position(store, name)
        assert await texts(store, "a") == ["a"]
        assert await texts(store, "c") == ["a", "b", "c"]
        history = known(await store.history("c"))
        # The order matters: it matches results to calls.
        assert list(history.recipients.items()) == [(f"call_{n}", f"functions.{n}") for n in "abc"]
        assert history.session == "session"

    async def test_a_history_is_read_by_its_position_after_its_response_is_deleted(
        self, store: Store
    ) -> None:
        await put_turns(store, a=None, b="a")
        parent = await position(store, "a")
        await store.delete("a")
        history = await store.history_at(parent, "session")
        assert [segment.text for segment in history.segments] == ["a"]
        assert (history.session, history.position) == ("session", parent)
        assert (await store.history_at(None, "")).segments == ()

    async def test_calls_wait_until_a_later_turn_answers_them(self, store: Store) -> None:
        call = ("server.tool", "{}")
        await store.put(turn("a", None, approvals={"mcpr_1": call, "mcpr_2": call}))
        await store.put(turn("b", await position(store, "a"), answered=("mcpr_1",)))
        await store.put(turn("c", await position(store, "a"), approvals={"mcpr_3": call}))
        waiting = [known(await store.history(name)).approvals for name in "abc"]
        assert waiting[0] == {"mcpr_1": call, "mcpr_2": call}
        assert waiting[1] == {"mcpr_2": call}
        assert waiting[2] == {**waiting[0], "mcpr_3": call}

    async def test_branches_share_their_past(self, store: Store) -> None:
        await put_turns(store, a=None, b="a", c="a", d="b")
        assert await texts(store, "c") == ["a", "c"]
        assert await texts(store, "d") == ["a", "b", "d"]
        await store.delete("b")
        assert await texts(store, "c") == ["a", "c"]
        assert await texts(store, "d") == ["a", "b", "d"]

    async def test_a_turn_without_a_parent_stands_for_everything_before_it(self, store: Store) -> None:
        await store.put(turn("b", None, segments=[segment("summary"), segment("answer")]))
        await put_turns(store, c="b")
        assert await texts(store, "c") == ["summary", "answer", "c"]

    @pytest.mark.parametrize("deleted", ["a", "b", "abc", "cba"])
    async def test_the_children_of_deleted_responses_continue(self, store: Store, deleted: str) -> None:
        await put_turns(store, a=None, b="a", c="b", d="c")
        for name in deleted:
            await store.delete(name)
            assert await store.get(name) is None
            assert await store.history(name) is None
        assert await texts(store, "d") == ["a", "b", "c", "d"]
        await put_turns(store, e="d")
        assert await texts(store, "e") == ["a", "b", "c", "d", "e"]

    async def test_a_deleted_parent_is_refused_and_nothing_is_stored(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"))
        await store.put(turn("a", None))
        parent = await position(store, "a")
        await store.delete("a")
        with pytest.raises(UnknownParent):
            await store.put(turn("b", parent), append("conv_1", part("msg_1")))
        assert await store.get("b") is None
        assert await ids(store, "conv_1") == []

    async def test_replacing_a_response_does_not_change_its_children(self, store: Store) -> None:
        await put_turns(store, a=None, b="a")
        await store.put(turn("a", None, segments=[segment("other")]))
        assert await texts(store, "a") == ["other"]
        assert await texts(store, "b") == ["a", "b"]

    async def test_a_conversation_is_kept_whole_until_it_is_deleted(self, store: Store) -> None:
        parts = (part("msg_1"), part("msg_2", "msg_3"))
        await store.put_conversation(conversation("conv_1"), parts)
        assert await store.get_conversation("conv_1") == conversation("conv_1")
        assert await store.conversation_parts("conv_1") == parts
        assert await ids(store, "conv_1") == ["msg_1", "msg_2", "msg_3"]
        history = known(await store.conversation_history("conv_1"))
        assert [segment.text for segment in history.segments] == ["msg_1", "msg_2 msg_3"]
        assert history.session == "conv_1"
        assert await store.get("conv_1") is None
        assert await store.item("msg_2") == item("msg_2")
        assert await store.delete_conversation("conv_1") is True
        assert await store.get_conversation("conv_1") is None
        assert await store.conversation_parts("conv_1") is None
        assert await store.conversation_history("conv_1") is None
        assert await store.delete_conversation("conv_1") is False
        assert await store.item("msg_2") is None

    async def test_setting_metadata_changes_nothing_else(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"), [part("msg_1")])
        changed = known(await store.set_metadata("conv_1", {"topic": "other"}))
        assert (changed.id, changed.created_at, changed.metadata) == ("conv_1", 1_000, {"topic": "other"})
        assert await store.get_conversation("conv_1") == changed
        assert await ids(store, "conv_1") == ["msg_1"]
        assert await store.set_metadata("conv_2", {}) is None

    async def test_parts_are_appended_with_unique_item_ids(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"), [part("msg_1")])
        twice = append("conv_1", part("msg_2", "msg_1"), part("msg_2"))
        items = known(await store.append(twice))
        assert [item["id"] for item in items] == ["msg_2", "msg_1_again_1", "msg_2_again_2"]
        assert await ids(store, "conv_1") == ["msg_1", "msg_2", "msg_1_again_1", "msg_2_again_2"]
        assert await store.item("msg_2_again_2") is not None
        assert await store.append(append("conv_2", part("msg_1"))) is None

    async def test_a_response_and_its_part_of_a_conversation_are_stored_together(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"), [part("msg_1")])
        history = known(await store.conversation_history("conv_1"))
        await store.put(turn("a", history.position), append("conv_1", part("msg_2")))
        assert await texts(store, "a") == ["msg_1", "a"]
        assert await ids(store, "conv_1") == ["msg_1", "msg_2"]
        await store.delete_conversation("conv_1")
        assert await texts(store, "a") == ["msg_1", "a"]  # the response continues by its own id
        await store.put(turn("b", None), append("conv_1", part("msg_3")))
        assert await store.get("b") is not None
        assert await store.get_conversation("conv_1") is None

    async def test_concurrent_appends_are_atomic_and_all_take_effect(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"), [part("first")])
        history = known(await store.conversation_history("conv_1"))

        async def put(n: int) -> None:
            grows = append("conv_1", part(f"q{n}"), part(f"a{n}"))
            await store.put(turn(f"resp_{n}", history.position), grows)

        await asyncio.gather(*map(put, range(16)))
        listed = await ids(store, "conv_1")
        pairs = [listed[place : place + 2] for place in range(1, len(listed), 2)]
        assert sorted(pairs) == sorted([f"q{n}", f"a{n}"] for n in range(16))
        assert await texts(store, "resp_7") == ["first", "resp_7"]

    async def test_rewriting_a_conversation_fails_if_it_has_changed(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"), [part("msg_1"), part("msg_2")])
        history = known(await store.conversation_history("conv_1"))
        await store.put(turn("a", history.position))
        found = known(await store.get_conversation("conv_1"))
        assert await store.rewrite_conversation("conv_1", found.version, [part("msg_2")]) is True
        assert await ids(store, "conv_1") == ["msg_2"]
        assert await store.item("msg_1") is None
        # The conversation at the time of the response.
        assert await texts(store, "a") == ["msg_1", "msg_2", "a"]
        assert await store.rewrite_conversation("conv_1", found.version, []) is False
        assert await store.rewrite_conversation("conv_2", 0, []) is False
        for change in (store.append(append("conv_1", part("msg_3"))), store.set_metadata("conv_1", {})):
            found = known(await store.get_conversation("conv_1"))
            await change
            assert await store.rewrite_conversation("conv_1", found.version, []) is False
        assert await ids(store, "conv_1") == ["msg_2", "msg_3"]

    async def test_an_append_that_fails_changes_nothing(self, store: Store) -> None:
        def fails(item: Item) -> str:
            raise ValueError("no")

        await store.put_conversation(conversation("conv_1"), [part("msg_1")])
        with pytest.raises(ValueError, match="no"):
            await store.append(Append("conv_1", (part("msg_2"), part("msg_1")), fails))
        assert await ids(store, "conv_1") == ["msg_1"]
        with pytest.raises(ValueError, match="no"):
            await store.put(turn("a", None), Append("conv_1", (part("msg_2"), part("msg_1")), fails))
        assert await ids(store, "conv_1") == ["msg_1"]
        assert await store.get("a") is None

    async def test_the_oldest_responses_are_evicted_and_their_children_continue(self) -> None:
        store = await self.make_small(2)
        positions: list[Position | None] = [None]
        for name in ("a", "b", "c", "d"):
            await store.put(turn(name, positions[-1]))
            positions.append(await position(store, name))
        await self.settle(store)
        assert [await store.get(name) is not None for name in "abcd"] == [False, False, True, True]
        assert await store.history("a") is None
        assert await texts(store, "d") == ["a", "b", "c", "d"]
        await store.put(turn("branch", positions[1]))  # its parent's turn is kept for other children
        assert await texts(store, "branch") == ["a", "branch"]
        await store.close()

    async def test_an_evicted_parent_is_refused(self) -> None:
        store = await self.make_small(1)
        await store.put(turn("a", None))
        parent = await position(store, "a")
        await store.put(turn("b", None))
        await self.settle(store)
        with pytest.raises(UnknownParent):
            await store.put(turn("c", parent))
        assert await texts(store, "b") == ["b"]
        await store.close()

    async def test_the_least_recently_changed_conversation_is_evicted(self) -> None:
        store = await self.make_small(2)
        for name in ("conv_1", "conv_2"):
            await store.put_conversation(conversation(name), [part(f"msg_{name}")])
        history = known(await store.conversation_history("conv_2"))
        await store.put(turn("a", history.position))
        await store.append(append("conv_1", part("msg_3")))
        await store.put_conversation(conversation("conv_3"))
        await self.settle(store)
        found = [await store.get_conversation(name) is not None for name in ("conv_1", "conv_2", "conv_3")]
        assert found == [True, False, True]
        assert await store.item("msg_conv_2") is None
        assert await texts(store, "a") == ["msg_conv_2", "a"]
        await store.close()

    @pytest.mark.parametrize("of", ["responses", "a conversation"])
    async def test_the_cost_of_a_turn_does_not_grow_with_its_history(self, store: Store, of: str) -> None:
        await store.put_conversation(conversation("conv_1"))
        costs: list[int] = []
        for number in range(1_000):
            if of == "responses":
                past, grows = await store.history(f"resp_{number - 1}"), None
            else:
                past = await store.conversation_history("conv_1")
                added = ConversationPart((item(f"msg_{number}"),), Addition((own_segment(),)))
                grows = append("conv_1", added)
            given = turn(f"resp_{number}", past and past.position, segments=[own_segment()])
            Visited.visits = 0
            await store.put(given, grows)
            costs.append(Visited.visits)
        assert len(known(past).segments) == 999
        assert 0 < costs[999] <= costs[9]
