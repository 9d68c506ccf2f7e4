"""The contract of every store of responses, as to whom its records belong."""

from gpt_oss_server.stores.base import Store, StoredResponse
from gpt_oss_server.stores.pages import Wanted
from tests.doubles.stored import append, conversation, ids, item, known, part, stored, turn


class OwnersContract:
    async def test_an_owner_finds_its_own_records_alone(self, store: Store) -> None:
        alice, bob = store.of("alice"), store.of("bob")
        await alice.put(turn("resp_1", None))
        await alice.put_conversation(conversation("conv_1"), [part("msg_1")])
        kept, named = known(await alice.get("resp_1")), known(await alice.get_conversation("conv_1"))
        assert (kept.owner, named.owner) == ("alice", "alice")
        assert await alice.item("msg_1") == item("msg_1")
        for other in (bob, store):
            assert await other.get("resp_1") is None
            assert await other.history("resp_1") is None
            assert await other.delete("resp_1") is False
            assert await other.item("msg_1") is None
            assert await other.get_conversation("conv_1") is None
            assert await other.conversation_parts("conv_1") is None
            assert await other.conversation_page("conv_1", Wanted(1)) is None
            assert await other.conversation_item("conv_1", "msg_1") is None
            assert await other.input_page("resp_1", Wanted(1)) is None
            assert await other.conversation_history("conv_1") is None
            assert await other.append(append("conv_1", part("msg_2"))) is None
            assert await other.set_metadata("conv_1", {}) is None
            assert await other.rewrite_conversation("conv_1", named.version, []) is False
            assert await other.delete_conversation("conv_1") is False
            await other.put(turn("resp_2", None), append("conv_1", part("msg_2")))
            await other.delete("resp_2")
        assert await alice.get("resp_1") == kept
        assert await alice.get_conversation("conv_1") == named
        assert await ids(alice, "conv_1") == ["msg_1"]

    async def test_items_of_one_id_are_each_owners_own(self, store: Store) -> None:
        for owner in ("alice", "bob"):
            response = {"id": f"resp_{owner}", "output": [item("ws_1", owner)]}
            await store.of(owner).put(StoredResponse(response, results={"ws_1": f"of {owner}"}))
        for owner in ("alice", "bob"):
            assert await store.of(owner).item("ws_1") == item("ws_1", owner)
            assert await store.of(owner).result("ws_1") == f"of {owner}"
        await store.of("bob").delete("resp_bob")
        assert await store.of("bob").item("ws_1") is None
        assert await store.of("alice").item("ws_1") == item("ws_1", "alice")

    async def test_the_bytes_of_an_owner_are_those_of_its_records(self, store: Store) -> None:
        alice, bob = store.of("alice"), store.of("bob")
        assert await alice.used_bytes() == 0
        await alice.put(stored("resp_1", tokens=10_000))
        one = await alice.used_bytes()
        assert one > 10_000
        await alice.put_conversation(conversation("conv_1"), [part("msg_1", tokens=10_000)])
        await alice.append(append("conv_1", part("msg_2", tokens=10_000)))
        assert await alice.used_bytes() > one + 2 * 10_000
        assert await bob.used_bytes() == 0
        assert await store.used_bytes() == 0
        await alice.delete("resp_1")
        await alice.delete_conversation("conv_1")
        assert await alice.used_bytes() == 0
