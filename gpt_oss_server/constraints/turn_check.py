"""Checks whether a finished turn has the required form, for engines that do not enforce grammars."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpt_oss_server.constraints.grammar import Body, JsonBody, TextBody
from gpt_oss_server.constraints.json_check import JsonCheck
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.json_values import read_json_text


@dataclass(frozen=True, slots=True)
class TurnCheck:
    grammars: Grammars | None  # None: no form needs them
    answer: Body
    bodies: Mapping[str, Body]  # the form of a call's body, by its recipient
    must_call: bool
    only: frozenset[str] | None

    def problem(self, messages: Iterable[tuple[Header, str]], called: bool = False) -> str | None:
        """Checks a turn that ended by itself. `called`: it started with a call that the user had approved."""
        answered = False
        for header, text in messages:
            called = called or header.recipient is not None
            answered = answered or (header.recipient is None and header.channel == "final")
            if (problem := self._message_problem(header, text)) is not None:
                return problem
        if self.must_call and not called:
            return "The model had to call a tool, but called none."
        if self.answer is not None and not answered and not called:
            return "The model gave no answer, but an answer in the requested format was expected."
        return None

    def header_problem(self, header: Header) -> str | None:
        """Why a message with this header must not begin: it is a call that the request does not allow."""
        if self.only is None or header.recipient is None or header.recipient in self.only:
            return None
        return f"The model called '{header.recipient}', which tool_choice does not allow."

    def _message_problem(self, header: Header, text: str) -> str | None:
        if header.recipient is not None:
            return self.header_problem(header) or self._call_problem(header.recipient, text)
        return self._answer_problem(text) if header.channel == "final" else None

    def _answer_problem(self, text: str) -> str | None:
        if isinstance(self.answer, JsonBody):
            problem = self._json_problem(self.answer, text)
            return problem and f"The model's answer does not fit the requested format: {problem}."
        follows = self._follows(self.answer, text)
        return None if follows else "The model's answer does not follow the requested grammar."

    def _call_problem(self, recipient: str, text: str) -> str | None:
        body = self.bodies.get(recipient)
        if isinstance(body, JsonBody):
            problem = self._json_problem(body, text)
            return problem and f"The arguments for '{recipient}' do not fit its schema: {problem}."
        follows = self._follows(body, text)
        return None if follows else f"The input for '{recipient}' does not follow its grammar."

    def _json_problem(self, body: JsonBody, text: str) -> str | None:
        try:
            value = read_json_text(text)
        except ValueError as error:
            return f"it is not JSON ({error})"
        assert self.grammars is not None
        return JsonCheck(body.schema, self.grammars).problem(value)

    def _follows(self, body: TextBody | None, text: str) -> bool:
        if body is None:
            return True
        assert self.grammars is not None
        return self.grammars.matches(self.grammars.compile(body.lark), text)
