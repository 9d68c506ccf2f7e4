"""The contract of every store of allowances."""

import asyncio

import pytest

from gpt_oss_server.stores.sql.allowances import Allowances, Charge, Refused
from gpt_oss_server.stores.sql.database import Database


async def used_up(allowances: Allowances, name: str, limit: int, amount: float) -> int:
    count = 0
    while True:
        try:
            await allowances.take([Charge(name, amount, limit)])
        except Refused:
            return count
        count += 1


class AllowancesContract:
    database: Database

    @pytest.fixture
    def allowances(self) -> Allowances:
        return Allowances(self.database)

    async def test_a_limit_may_be_used_up_at_once_and_is_then_refused_with_the_time(
        self, allowances: Allowances
    ) -> None:
        [left] = await allowances.take([Charge("a", 50, 60)])
        assert 10 <= left.amount < 11
        assert 49 < left.seconds_until_full <= 50
        with pytest.raises(Refused) as caught:
            await allowances.take([Charge("a", 30, 60)])
        assert 15 < caught.value.seconds <= 20
        [left] = await allowances.take([Charge("a", 5, 60)])
        assert 5 <= left.amount < 8

    async def test_it_grows_again_steadily_and_never_beyond_the_limit(self, allowances: Allowances) -> None:
        await allowances.take([Charge("a", 600, 600)])
        await asyncio.sleep(0.5)
        [left] = await allowances.take([Charge("a", 0, 600)])
        assert 5 <= left.amount < 300
        await allowances.give_back([Charge("a", 10_000, 600)])
        [left] = await allowances.take([Charge("a", 0, 600)])
        assert left.amount == 600

    async def test_charges_are_made_together_or_not_at_all(self, allowances: Allowances) -> None:
        await allowances.take([Charge("all", 1, 1)])
        for _ in range(3):
            with pytest.raises(Refused) as caught:
                await allowances.take([Charge("key", 1, 60), Charge("all", 1, 1)])
            assert caught.value.charge.name == "all"
        [left] = await allowances.take([Charge("key", 0, 60)])
        assert left.amount == 60

    async def test_what_was_reserved_and_not_used_is_given_back_and_more_is_a_debt(
        self, allowances: Allowances
    ) -> None:
        await allowances.take([Charge("a", 40, 60)])
        await allowances.give_back([Charge("a", 30, 60)])
        [left] = await allowances.take([Charge("a", 0, 60)])
        assert 50 <= left.amount < 53
        await allowances.give_back([Charge("a", -100, 60)])
        with pytest.raises(Refused) as caught:
            await allowances.take([Charge("a", 1, 60)])
        assert 40 < caught.value.seconds <= 51

    async def test_names_and_amounts_do_not_mix(self, allowances: Allowances) -> None:
        lefts = await allowances.take([Charge("b", 1, 10), Charge("a", 2, 20)])
        assert [(left.charge.name, int(left.amount)) for left in lefts] == [("b", 9), ("a", 18)]

    async def test_many_at_once_get_no_more_than_there_is(self, allowances: Allowances) -> None:
        counts = await asyncio.gather(*(used_up(allowances, "a", 60, 1) for _ in range(8)))
        assert 60 <= sum(counts) < 90, "a second of growth is one"
