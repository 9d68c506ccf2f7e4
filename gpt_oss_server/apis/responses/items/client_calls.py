"""Builders of the items of calls whose text the client reads as the model wrote it: functions, custom tools.

`items/builder` is the contract. `ClientCall` is the base of these and of the calls with a fixed shape.
"""

from __future__ import annotations

from typing import ClassVar

from gpt_oss_server.content.logprobs import Speller, TextScores
from gpt_oss_server.items.builder import Event, EventTexts, Item, ItemBuilder
from inference.engine import TokenLogprob


class ClientCall(ItemBuilder):
    client_runs = True

    def __init__(self, item_id: str, call_id: str, recipient: str) -> None:
        super().__init__(item_id)
        self.recipient = (call_id, recipient)
        self._call_id = call_id


class WrittenCall(ClientCall):
    """A call whose item holds the model's text and streams it."""

    kind: str
    body: str  # the item's key of that text
    event: str

    def __init__(
        self, item_id: str, call_id: str, recipient: str, name: str, namespace: str | None = None
    ) -> None:
        super().__init__(item_id, call_id, recipient)
        self._called = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.scores: TextScores | None = None  # None: no log-probabilities

    def score(self, scored: TokenLogprob) -> None:
        if self.scores is not None:
            self.scores.score(scored)

    def _item(self, text: str, status: str) -> Item:
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            self.body: text,
            "call_id": self._call_id,
            **self._called,
            **self._scored(),
        }

    def _scored(self) -> Item:
        return {} if self.scores is None else {"logprobs": list(self.scores.sent)}

    def open(self) -> tuple[Item, list[Event]]:
        return self._item("", "in_progress"), []

    def delta(self, text: str) -> tuple[Event, ...]:
        event: Event = {"type": f"{self.event}.delta", "delta": text}
        if self.scores is not None:
            event["logprobs"] = self.scores.show(text)
        return (event,)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        done = {**self._done(text), **self._scored()}
        return [done], self._item(text, "completed" if complete else "incomplete")

    def _done(self, text: str) -> Event:
        return {"type": f"{self.event}.done", self.body: text}


class FunctionCallBuilder(WrittenCall):
    """The arguments are the model's text, even if it is invalid JSON."""

    about = "A call of a function, which the client runs and answers with a `function_call_output`."
    about_events: ClassVar[EventTexts] = {
        "response.function_call_arguments.delta": "More of a function call's arguments.",
        "response.function_call_arguments.done": "The arguments of a function call are complete.",
    }
    kind = "function_call"
    body = "arguments"
    event = "response.function_call_arguments"

    def _done(self, text: str) -> Event:
        return {"type": f"{self.event}.done", "name": self._called["name"], "arguments": text}


class CustomCallBuilder(WrittenCall):
    """The input is the model's free-form text."""

    about = "A call of a custom tool, which the client runs and answers with a `custom_tool_call_output`."
    about_events: ClassVar[EventTexts] = {
        "response.custom_tool_call_input.delta": "More of the input of a custom tool's call.",
        "response.custom_tool_call_input.done": "The input of a custom tool's call is complete.",
    }
    kind = "custom_tool_call"
    body = "input"
    event = "response.custom_tool_call_input"


def with_scores(builder: WrittenCall, speller: Speller | None) -> ItemBuilder:
    builder.scores = None if speller is None else TextScores(speller)
    return builder
