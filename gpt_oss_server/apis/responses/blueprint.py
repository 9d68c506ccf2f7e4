"""What another process needs to continue a background response, beside its tape.

Takes the request as it was resolved, and everything that preparing it took from its surroundings: ids, the
time, the prompt. Returns bytes, and the same from those bytes.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic_core import from_json, to_json

from gpt_oss_server.apis.responses.past import Past, past_from
from gpt_oss_server.apis.responses.prepare import PreparedResponse
from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.chain import Position
from gpt_oss_server.stores.events import Continuation
from gpt_oss_server.stores.keep import Keep

_UNFINISHED = ("queued", "in_progress")


def new_seed() -> str:
    """The seed of a run's ids."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Blueprint:
    seed: str
    request: dict[str, Any]  # with its references resolved
    response: dict[str, Any]  # as it was when the run began
    items: list[dict[str, Any]]  # the request's input
    results: dict[str, str]  # of the calls that the input references
    session: str
    position: Position | None
    prompt: list[int]
    caller: dict[str, Any] = field(default_factory=dict)  # with the limits and tools of its key

    @classmethod
    def of(cls, run: Run, prepared: PreparedResponse, seed: str) -> Blueprint:
        past = prepared.past
        return cls(
            seed=seed,
            request=prepared.request.model_dump(mode="json", exclude_unset=True),
            response=run.response,
            items=list(prepared.items),
            results=dict(past.results),
            session=past.session,
            position=past.position,
            prompt=list(prepared.prompt),
            caller=run.caller.stored,
        )

    @classmethod
    def read(cls, content: bytes) -> Blueprint:
        return cls(**from_json(content))

    @property
    def continuation(self) -> Continuation:
        return Continuation(to_json(asdict(self)), self.position)

    @property
    def parsed(self) -> CreateResponse:
        return CreateResponse.model_validate(self.request)

    async def past(self, keep: Keep) -> Past:
        history = await keep.responses.history_at(self.position, self.session)
        return replace(past_from(history), results=self.results)

    def snapshot(self, events: list[dict[str, Any]]) -> StoredResponse:
        """The current response, from the events that are logged so far. They may include the end."""
        reported = [event["response"] for event in events if "response" in event]
        if reported and reported[-1]["status"] not in _UNFINISHED:
            return StoredResponse(reported[-1], tuple(self.items))
        response = dict(self.response)
        response["output"] = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        status = (reported or [response])[-1]["status"]
        return StoredResponse({**response, "status": status}, tuple(self.items))
