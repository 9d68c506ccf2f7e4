"""The conversation: messages in, answers out. The server keeps the history."""

import sys
from collections.abc import Sequence

from gpt_oss_server.cli.chat.reader import typing_ignored
from gpt_oss_server.cli.chat.record import Record
from gpt_oss_server.cli.chat.talker import CannotAnswer, Event, Item, Talker
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.response_view import Terminal

_MOST_CALLS = 100  # in one answer; a model that makes more runs in circles, perhaps unwatched


class Conversation:
    def __init__(
        self,
        talker: Talker,
        *,
        effort: str,
        instructions: str | None,
        shows_reasoning: bool,
        tools: Sequence[Item],
    ) -> None:
        self.effort = effort
        self.record = Record()
        self.tools = tools
        self.colour = console.colourful(sys.stdout)
        self._talker = talker
        self._instructions = instructions
        self._previous: str | None = None
        self._unsent: list[Item] = []  # outputs of calls that the model has not seen yet
        self._terminal = Terminal(
            lambda text: console.out(text, end=""),
            colour=self.colour,
            reasoning=shows_reasoning,
            guarded=sys.stdout.isatty(),
        )
        self.note = self._terminal.note

    def start_over(self) -> None:
        self._previous, self._unsent = None, []
        self.record.forget()

    def answer(self, message: str) -> bool:
        """Whether there is an answer; if not, the terminal shows why."""
        items: list[Item] = [*self._unsent, {"type": "message", "role": "user", "content": message}]
        try:
            for _ in range(_MOST_CALLS):
                response = self._turn(items)
                if response["status"] == "failed":  # the next turn continues from the one before it
                    return False
                self._previous, self._unsent = response["id"], []
                if response["status"] == "completed":
                    self._unsent = _refusals(response["output"])
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

    def _request(self, items: list[Item]) -> Item:
        body: Item = {"input": items, "reasoning": {"effort": self.effort}, "tools": self.tools}
        body |= {"stream": True, "store": True, "include": ["code_interpreter_call.outputs"]}
        if self._instructions:
            body["instructions"] = self._instructions
        if self._previous:
            body["previous_response_id"] = self._previous
        return body


def _refusals(output: Sequence[Item]) -> list[Item]:
    """An output for each call of a function, of which the chat has none. Without it, the model would wait."""
    refusal = "There is no function {!r} here. Answer without it."
    calls = (item for item in output if item["type"] == "function_call")
    return [
        {"type": "function_call_output", "call_id": call["call_id"], "output": refusal.format(call["name"])}
        for call in calls
    ]
