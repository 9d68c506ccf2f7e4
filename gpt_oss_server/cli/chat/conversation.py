"""The conversation: messages in, answers and the results of calls out. The server keeps the history."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpt_oss_server.cli.chat.functions import PATCH, Function, apply_if_confirmed
from gpt_oss_server.cli.chat.reader import Reader, typing_ignored
from gpt_oss_server.cli.chat.record import Record
from gpt_oss_server.cli.chat.talker import CannotAnswer, Event, Item, Talker
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.response_view import Terminal

_MOST_CALLS = 100  # in one answer; a model that makes more runs in circles, perhaps unwatched


class Conversation:
    def __init__(
        self,
        talker: Talker,
        reader: Reader,
        *,
        effort: str,
        instructions: str | None,
        shows_reasoning: bool,
        tools: Sequence[Item],
        functions: Mapping[str, Function],
    ) -> None:
        self.effort = effort
        self.record = Record()
        self.tools = [*tools, *(function.declaration for function in functions.values())]
        self.colour = console.colourful(sys.stdout)
        self._talker = talker
        self._reader = reader
        self._instructions = instructions
        self._functions = functions
        self._edits = any(tool.get("name") == PATCH for tool in tools)
        self._previous: str | None = None
        self._unsent: list[Item] = []  # outputs of calls that the model has not seen yet
        self._terminal = Terminal(
            lambda text: console.out(text, end=""),
            colour=self.colour,
            reasoning=shows_reasoning,
            shown_otherwise=(PATCH,),
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
        self._unsent = [_output(call, "The user stopped this call before it was made.") for call in calls]
        for index, call in enumerate(calls):
            self._unsent[index] = _output(call, self._result(call["name"], call["arguments"]))

    def _result(self, name: str, arguments: str) -> str:
        if name == PATCH and self._edits:
            return apply_if_confirmed(arguments, Path.cwd(), self._terminal, self._reader)
        if name in self._functions:
            result = self._functions[name].call(arguments, self._reader.ask)
            self._terminal.quote("gives", result)
            return result
        return f"There is no function {name!r} here. Answer without it."

    def _request(self, items: list[Item]) -> Item:
        body: Item = {"input": items, "reasoning": {"effort": self.effort}, "tools": self.tools}
        body |= {"stream": True, "store": True, "include": ["code_interpreter_call.outputs"]}
        body["metadata"] = {"__debug": "1"}  # for /raw and /tokens
        if self._instructions:
            body["instructions"] = self._instructions
        if self._previous:
            body["previous_response_id"] = self._previous
        return body


def _output(call: Item, output: str) -> Item:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}
