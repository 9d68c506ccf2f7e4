"""The work of one request: for whom, by which model, what of it lasts, the kinds of its items, and its ids
and its time.

Made from a caller, and handed down through reading, binding, laying out and running. A run that is recorded,
or that continues elsewhere, has an engine, ids and a clock of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.ids import Ids, following
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.models.model import Model
from gpt_oss_server.stores.kinds.keep import Keep


@dataclass(frozen=True, slots=True)
class Work:
    caller: Caller
    model: Model
    keep: Keep
    kinds: Kinds
    ids: Ids
    clock: Callable[[], float]

    def new_id(self, prefix: str, chosen: str | None, *, lasts: bool = False) -> str:
        """The id of an API's object; `chosen` is the field of the request, and else its header counts."""
        return following(self.ids(prefix), chosen or self.caller.chosen_id, lasts=lasts)

    def date(self) -> str:
        """Today's date in the format of Harmony's system message."""
        return datetime.fromtimestamp(self.clock()).strftime("%Y-%m-%d")
