"""The contract of every store, as to pages of items: right, and at the cost of the page."""

import itertools
from functools import partial

import pytest

from gpt_oss_server.stores.base import ConversationPart, Store, StoredResponse
from gpt_oss_server.stores.pages import UnknownItem, Wanted
from tests.doubles.stored import append, conversation, counted, item, known, part, turn

_PARTS = [["m0", "m1", "m2"], [], ["m3"], ["m4", "m5", "m6", "m7", "m8"], ["m9"]]


class PagesContract:
    @pytest.mark.parametrize("newest_first", [True, False])
    async def test_pages_of_conversations_and_inputs_are_those_of_their_lists(
        self, store: Store, newest_first: bool
    ) -> None:
        given = [tuple(item(name, "é\0🙂") for name in names) for names in _PARTS]
        parts = [ConversationPart(items, part("x").added) for items in given]
        await store.put_conversation(conversation("conv_1"), parts[:2])
        for each in parts[2:]:
            await store.append(append("conv_1", each))
        whole = tuple(itertools.chain.from_iterable(given))
        await store.put(StoredResponse({"id": "resp_1", "text": "[é", "output": [item("out")]}, whole))
        ordered = whole[::-1] if newest_first else whole
        of_both = (partial(store.conversation_page, "conv_1"), partial(store.input_page, "resp_1"))
        for page, first, most in itertools.product(of_both, range(len(whole) + 1), (1, 2, 4, 10, 100)):
            after = ordered[first - 1]["id"] if first else None
            found = known(await page(Wanted(most, after, newest_first=newest_first)))
            assert found.items == ordered[first:][:most]
            assert found.has_more == (len(ordered) - first > most)
        for page, after in itertools.product(of_both, ("m10", "out", "resp_1")):
            with pytest.raises(UnknownItem):
                await page(Wanted(1, after))
        assert await store.conversation_page("conv_2", Wanted(1)) is None
        assert await store.input_page("resp_2", Wanted(1)) is None
        await store.put(StoredResponse({"id": "resp_3", "output": []}))
        empty = known(await store.input_page("resp_3", Wanted(1)))
        assert (empty.items, empty.has_more) == ((), False)

    async def test_one_item_of_a_conversation_is_found_by_its_id(self, store: Store) -> None:
        await store.put_conversation(conversation("conv_1"), [part("m0", "m1"), part("m2")])
        await store.put_conversation(conversation("conv_2"), [part("m0")])
        await store.append(append("conv_1", part("m0", "m4")))
        for name in ("m0", "m1", "m2", "m0_again_1", "m4"):
            assert await store.conversation_item("conv_1", name) == item(name)
        assert await store.conversation_item("conv_2", "m1") is None
        assert await store.conversation_item("conv_3", "m0") is None

    async def test_a_page_costs_what_it_contains(self, store: Store) -> None:
        reads = counted(store)
        large = [item(f"large_{number}", "x" * 20_000) for number in range(50)]
        await store.put_conversation(conversation("conv_1"))
        for number in range(10):
            renamed = tuple({**each, "id": f"{each['id']}_{number}"} for each in large)
            await store.append(append("conv_1", ConversationPart(renamed, part("x", tokens=9).added)))
        await store.put(StoredResponse({**turn("resp_1", None).response}, tuple(large)))
        for read, most in (
            (store.conversation_page("conv_1", Wanted(3, "large_30_5")), 5 * 20_500),
            (store.input_page("resp_1", Wanted(3, "large_30")), 5 * 20_500),
            (store.conversation_item("conv_1", "large_7_7"), 20_500),
        ):
            before = reads.read
            assert await read is not None
            assert reads.read - before < most
