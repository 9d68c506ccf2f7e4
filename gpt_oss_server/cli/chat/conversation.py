"""The conversation: messages and commands in, answers and the results of calls out.

The server or the service here keeps the history; this object holds the id of the last response and the
record of the turns.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_oss_server.cli.chat import tools as chat_tools
from gpt_oss_server.cli.chat.functions import Function, Functions
from gpt_oss_server.cli.chat.reader import Reader, typing_ignored
from gpt_oss_server.cli.chat.record import Record
from gpt_oss_server.cli.chat.talker import CannotAnswer, Event, Item, Talker
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.response_view import Terminal

if TYPE_CHECKING:
    from gpt_oss_server.cli.terminal.patching import Patcher

PATCH = "apply_patch"
_MOST_CALLS = 100  # in one answer; a model that makes more runs in circles, perhaps unwatched


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    effort: str
    instructions: str | None = None
    shows_reasoning: bool = True
    tools: Sequence[Item] = ()
    functions: Sequence[Function] = field(default_factory=tuple)
    edits: bool = False


class Conversation:
    def __init__(self, talker: Talker, reader: Reader, options: Options) -> None:
        self.effort = options.effort
        self.record = Record()
        self.tools: list[Item] = [*options.tools, *(each.declaration for each in options.functions)]
        self.colour = console.colourful(sys.stdout)
        self._talker = talker
        self._options = options
        self._previous: str | None = None
        self._unsent: list[Item] = []  # outputs of calls that the model has not seen yet
        self._terminal = Terminal(
            _write,
            colour=self.colour,
            reasoning=options.shows_reasoning,
            shown_otherwise=(PATCH,),
            guarded=sys.stdout.isatty(),
        )
        self.note = self._terminal.note
        self._functions = Functions(list(options.functions), reader.ask)
        self._patcher = self._make_patcher(reader) if options.edits else None

    def _make_patcher(self, reader: Reader) -> Patcher:
        from gpt_oss_server.cli.terminal.patching import Patcher

        return Patcher(Path.cwd(), write=_write, note=self.note, ask=reader.ask, colour=self.colour)

    def start_over(self) -> None:
        self._previous, self._unsent = None, []
        self.record.forget()

    def answer(self, message: str) -> bool:
        """Whether there is an answer; if not, the terminal shows why."""
        items: list[Item] = [*self._unsent, {"type": "message", "role": "user", "content": message}]
        try:
            for _ in range(_MOST_CALLS):
                response = self._turn(items)
                # A failed response does not join the conversation: the next turn continues from the one
                # before it.
                if response["status"] == "failed":
                    return False
                self._previous, self._unsent = response["id"], []
                if response["status"] == "completed":
                    self._make_calls(response["output"])
                if not self._unsent:
                    return True
                items = self._unsent
            self.note(f"stopped after {_MOST_CALLS} calls; write anything to continue")
        except KeyboardInterrupt:
            self.note("stopped")
        except CannotAnswer as error:
            self.note(str(error))
        return False

    def _turn(self, items: list[Item]) -> Item:
        turn = self.record.begin(items)

        def show(event: Event) -> None:
            self.record.see(turn, event)
            self._terminal.show(event)

        with typing_ignored():
            response = self._talker.answer(self._request(items), show)
        self.record.end(turn, response)
        return response

    def _make_calls(self, output: Sequence[Item]) -> None:
        """Makes the calls outside the event loop, where Ctrl-C reaches the question that the user answers."""
        calls = [item for item in output if item["type"] == "function_call"]
        # Every call gets an output, whatever happens: a call without one would confuse the model later.
        self._unsent = [_output_of(call, "The user stopped this call before it was made.") for call in calls]
        for index, call in enumerate(calls):
            self._unsent[index] = _output_of(call, self._made(call))

    def _made(self, call: Item) -> str:
        name: str = call["name"]
        if name == PATCH and self._patcher is not None:
            return self._patcher.call(call["arguments"])
        if name in self._functions:
            result = self._functions.call(name, call["arguments"])
            self._terminal.quote("gives", result)
            return result
        return f"There is no function {name!r} here. Answer without it."

    def _request(self, items: list[Item]) -> Item:
        body: Item = {
            "input": items,
            "reasoning": {"effort": self.effort},
            "tools": self.tools,
            "include": chat_tools.INCLUDE,
            "metadata": {"__debug": "1"},  # for /raw and /tokens
            "stream": True,
            "store": True,
        }
        if self._options.instructions:
            body["instructions"] = self._options.instructions
        if self._previous:
            body["previous_response_id"] = self._previous
        return body


def _output_of(call: Item, output: str) -> Item:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}


def _write(text: str) -> None:
    console.out(text, end="")
