"""Admits requests within the limits of their key and of all clients, and reserves their tokens.

Where servers share a database, the limits per minute hold for all of them together; requests at work are
counted by each process.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

from gpt_oss_server.caller.access import Access
from gpt_oss_server.errors import RateLimitExceeded, StoreUnavailable, TokenLimitExceeded
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.sql.allowances import Allowances, Charge, Left, Refused

_RETRY_SECONDS = 1.0  # after which a place among a key's requests at work may be free
_WORDS = {"requests": "requests per minute (RPM)", "tokens": "tokens per minute (TPM)"}
_log = logging.getLogger(__name__)


class Admission:
    """A request that may run. Close it when the answer has ended."""

    def __init__(self, limiter: Limiter, access: Access) -> None:
        self._limiter = limiter
        self._access = access
        self._spendings: list[Spending] = []

    async def reserve(self, prompt: int, output: int, *, outlives: bool) -> Spending:
        spending = await self._limiter.reserve(self._access, prompt, output)
        if not outlives:
            self._spendings.append(spending)
        return spending

    def close(self) -> None:
        for spending in self._spendings:  # of runs that never began: the others have settled
            spending.settle(0)
        self._limiter.release(self._access)


class Limiter:
    def __init__(self, settings: Settings, allowances: Allowances, *, has_keys: bool) -> None:
        self._of_all = {"requests": settings.requests_per_minute, "tokens": settings.tokens_per_minute}
        self._allowances = allowances
        self.is_needed = has_keys or any(self._of_all.values())
        self._at_work: Counter[str] = Counter()  # by owner
        self._seen: dict[str, tuple[Left, float]] = {}  # what was left of each allowance, and when
        self._settling: set[asyncio.Task[None]] = set()

    async def admit(self, access: Access) -> Admission:
        """Counts a request. Raises a 429."""
        most = access.limits.concurrent
        if most is not None and self._at_work[access.owner] >= most:
            problem = f"This API key has {most} requests at work, as many as it may."
            advice = f"Please try again in {duration(_RETRY_SECONDS)}."
            raise RateLimitExceeded(f"{problem} {advice}", retry_after=_RETRY_SECONDS)
        self._at_work[access.owner] += 1
        try:
            await self._take(list(self._charges("requests", access, 1)))
        except BaseException:
            self.release(access)
            raise
        return Admission(self, access)

    def release(self, access: Access) -> None:
        self._at_work[access.owner] -= 1
        if not self._at_work[access.owner]:
            del self._at_work[access.owner]

    async def reserve(self, access: Access, prompt: int, output: int) -> Spending:
        limits = [charge.limit for charge in self._charges("tokens", access, 0)]
        if not limits:
            return Spending()
        if prompt > min(limits):
            raise TokenLimitExceeded(
                f"The request is too large: its prompt has {prompt:,} tokens, and the limit is "
                f"{min(limits):,} tokens per minute (TPM). Send a shorter prompt."
            )
        # A request that may use more than a whole minute's tokens waits until all of them are there.
        reserved = min([prompt + output, *limits])
        await self._take(list(self._charges("tokens", access, reserved)))
        return Spending(reserved, lambda given, used: self._settle(access, given - used))

    def headers(self, access: Access) -> dict[str, str]:
        """What is left, of the key's limits and those of all whichever allow less."""
        headers: dict[str, str] = {}
        for kind in _WORDS:
            if lefts := [self._left_now(charge) for charge in self._charges(kind, access, 0)]:
                left = min(lefts, key=lambda left: left.amount)
                headers |= {
                    f"x-ratelimit-limit-{kind}": str(left.charge.limit),
                    f"x-ratelimit-remaining-{kind}": str(max(0, math.floor(left.amount))),
                    f"x-ratelimit-reset-{kind}": duration(left.seconds_until_full),
                }
        return headers

    def has_limits(self, access: Access) -> bool:
        """Whether any header tells of one."""
        return any(True for kind in _WORDS for _ in self._charges(kind, access, 0))

    async def close(self) -> None:
        """Waits until all tokens are settled."""
        while self._settling:
            await asyncio.wait(set(self._settling))

    def _charges(self, kind: str, access: Access, amount: float) -> Iterator[Charge]:
        own = access.limits.rpm if kind == "requests" else access.limits.tpm
        if own is not None:
            yield Charge(f"{kind} {access.owner}", amount, own)
        if (of_all := self._of_all[kind]) is not None:
            yield Charge(kind, amount, of_all)

    async def _take(self, charges: list[Charge]) -> None:
        if not charges:
            return
        try:
            lefts = await self._allowances.take(charges)
        except Refused as refused:
            self._see(refused.left)
            raise _refusal(refused) from None
        for left in lefts:
            self._see(left)

    def _settle(self, access: Access, unused: int) -> None:
        charges = list(self._charges("tokens", access, unused))
        for charge in charges:
            left = self._left_now(charge)
            self._see(Left(charge, left.amount + unused))
        task = asyncio.get_running_loop().create_task(self._give_back(charges))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _give_back(self, charges: list[Charge]) -> None:
        try:
            await self._allowances.give_back(charges)
        except StoreUnavailable as error:
            _log.warning("Tokens of a request could not be settled: %s", error)

    def _see(self, left: Left) -> None:
        self._seen[left.charge.name] = left, time.monotonic()

    def _left_now(self, charge: Charge) -> Left:
        if (seen := self._seen.get(charge.name)) is None:
            return Left(charge, charge.limit)
        left, at = seen
        return Left(charge, min(charge.limit, left.amount + (time.monotonic() - at) * charge.limit / 60))


def _refusal(refused: Refused) -> RateLimitExceeded:
    charge, left = refused.charge, refused.left
    kind, _, owner = charge.name.partition(" ")
    whose = "this API key" if owner else "all clients together"
    kinds = {"requests": RateLimitExceeded, "tokens": TokenLimitExceeded}
    amounts = f"left {max(0, int(left.amount)):,}, requested {int(charge.amount):,}"
    problem = f"Rate limit reached for {whose} on {_WORDS[kind]}: limit {charge.limit:,}, {amounts}."
    advice = f"Please try again in {duration(refused.seconds)}."
    return kinds[kind](f"{problem} {advice}", retry_after=refused.seconds)


Settle = Callable[[int, int], None]  # the tokens that were reserved, and those that were used


class Spending:
    """The tokens of a run; without `settle`, of one whose tokens have no limit."""

    def __init__(self, reserved: int = 0, settle: Settle | None = None) -> None:
        self._reserved = reserved
        self._settle = settle

    def settle(self, used: int) -> None:
        """Counts what was used in place of what was reserved. Only the first call counts."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self._reserved, used)


def duration(seconds: float) -> str:
    """A time as OpenAI's service spells it: 250ms, 7.66s, 6m0s."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    minutes, rest = divmod(math.ceil(milliseconds / 1000), 60)
    return f"{minutes}m{rest}s"
