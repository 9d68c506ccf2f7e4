"""The caller: who asks, what its key allows, and for whom its work counts.

Made once where a request arrives, and handed down to everything that the request does. What another process
needs of it to continue a run is plain data (`stored`). It must not know HTTP, nor an API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpt_oss_server.caller.access import OPEN, Access, KeyLimits
from gpt_oss_server.caller.limiter import Admission, Spending
from tools.tool import Client

LAST = 2**31 - 1  # the priority of work that nobody waits for
ASSUMED_OUTPUT = 1024  # tokens that are reserved for the output of a request that sets no limit
SESSION = "x-session-id"  # requests of one session go to one machine
_ALLOWED = ("tools", "models")  # what a key may use
_FIT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Caller:
    access: Access = OPEN
    client: str = ""  # whom the work counts for: the owner of the key, else the connection
    labels: Mapping[str, str] = field(default_factory=dict)  # for engines, routers and traces of others
    admission: Admission | None = None  # None: the server has no limits
    body_size: int = 0  # bytes of the request's body
    chosen_id: str = ""  # that the client gave its request
    arrived: float | None = None  # waiting counts from then; None: from when its work begins
    priority: int = 0  # what its requests sample starts after that of lower numbers

    @property
    def owner(self) -> str:
        """Whose objects the request makes and sees; "" on a server without keys."""
        return self.access.owner

    @property
    def tool_client(self) -> Client:
        limits = self.access.limits
        return Client(self.client, limits.kernels, limits.memory)

    def with_key(self, access: Access) -> Caller:
        return replace(self, access=access, client=access.owner)

    def labels_with(self, session: str | None) -> dict[str, str]:
        """The labels with a session, unless the client named one."""
        named = {} if not session or SESSION in self.labels or not is_label(session) else {SESSION: session}
        return {**self.labels, **named}

    async def reserve(
        self, prompt: int, limit: int | None, most: int | None, *, outlives: bool = False
    ) -> Spending:
        """Reserves a run's tokens, or raises a 429. A run that `outlives` its request settles by itself."""
        if self.admission is None:
            return Spending()
        output = ASSUMED_OUTPUT if limit is None else limit
        output = output if most is None else min(output, most)
        return await self.admission.reserve(prompt, output, outlives=outlives)

    @property
    def stored(self) -> dict[str, Any]:
        """What a process needs that continues this caller's run: the same access, labels and limits."""
        access = self.access
        allowed = {of: None if (names := getattr(access, of)) is None else sorted(names) for of in _ALLOWED}
        key = {"name": access.name, "limits": asdict(access.limits), **allowed}
        return {**key, "client": self.client, "labels": dict(self.labels)}

    @classmethod
    def again(cls, owner: str, stored: Mapping[str, Any]) -> Caller:
        """The caller of a run that began elsewhere; older servers stored nothing but the owner."""
        if not stored:
            return cls(Access(owner), owner)
        tools, models = (None if (names := stored.get(of)) is None else frozenset(names) for of in _ALLOWED)
        access = Access(owner, stored["name"], tools, KeyLimits(**stored["limits"]), models)
        return cls(access, stored["client"], stored["labels"])


def is_label(text: str) -> bool:
    return _FIT.fullmatch(text) is not None


LOCAL = Caller()
"""A program in this process: it may do everything, and its objects have no owner."""
