"""The contract of every store, as to pages of items: right, and at the cost of the page."""

import itertools

import pytest

from gpt_oss_server.stores.base import ConversationPart, Store, StoredResponse
from gpt_oss_server.stores.pages import UnknownItem, Wanted
from tests.doubles.stored import append, conversation, counted, item, known, part, turn

_PARTS = [["m0", "m1", "m2"], [], ["m3"], ["m4", "m5", "m6", "m7", "m8"], ["m9"]]
_ALL = [name for names in _PARTS for name in names]


class PagesContract:
    @pytest.mark.parametrize("newest_first", [True, False])
    async def test_pages_of_a_conversation_are_those_of_its_list(
        self, store: Store, newest_first: bool
    ) -> None:
        await store.put_conversation(conversation("conv_1"), [part(*names) for names in _PARTS[:2]])
        for names in _PARTS[2:]:
            await store.append(append("conv_1", part(*names)))
        ordered = _ALL[::-1] if newest_first else _ALL
        for after, most in itertools.product([None, *_ALL], (1, 2, 4, 10, 100)):
            wanted = Wanted(most, after, newest_first=newest_first)
            found = known(await store.conversation_page("conv_1", wanted))
            rest = ordered[0 if after is None else ordered.index(after) + 1 :]
            assert [each["id"] for each in found.items] == rest[:most]
            assert found.has_more == (len(rest) > most)
        for after in ("m10", "resp_1"):
            with pytest.raises(UnknownItem):
                await store.conversation_page("conv_1", Wanted(1, after))
        assert await store.conversation_page("conv_2", Wanted(1)) is None

    @pytest.mark.parametrize("newest_first", [True, False])
    async def test_pages_of_an_input_are_those_of_its_list(self, store: Store, newest_first: bool) -> None:
        given = tuple(item(name, "é\0🙂") for name in _ALL)
        await store.put(StoredResponse({"id": "resp_1", "text": "[é", "output": [item("out")]}, given))
        ordered = given[::-1] if newest_first else given
        for after, most in itertools.product([None, *range(len(given))], (1, 4, 100)):
            named = None if after is None else ordered[after]["id"]
            found = known(await store.input_page("resp_1", Wanted(most, named, newest_first=newest_first)))
            rest = ordered[0 if after is None else after + 1 :]
            assert found.items == rest[:most]
            assert found.has_more == (len(rest) > most)
        with pytest.raises(UnknownItem):
            await store.input_page("resp_1", Wanted(1, "out"))
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
        wanted = Wanted(3, "large_30_5")
        for read, page in (
            (store.conversation_page, ("conv_1", wanted)),
            (store.input_page, ("resp_1", Wanted(3, "large_30"))),
        ):
            before = reads.read
            assert await read(*page) is not None
            assert reads.read - before < 5 * 20_500
        before = reads.read
        assert await store.conversation_item("conv_1", "large_7_7") is not None
        assert reads.read - before < 20_500
