"""Checks whether a finished turn has the required form, for engines that do not enforce grammars.

Takes the turn's messages. Returns a sentence that explains what is wrong, or None. It never changes the turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from gpt_oss_server.constraints.grammar import NOTHING, Banned, Body, JsonBody, TextBody
from gpt_oss_server.constraints.json_check import JsonCheck
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.constraints.model_json import read_json_text
from gpt_oss_server.harmony.events import Header


@dataclass(frozen=True, slots=True)
class TurnCheck:
    grammars: Grammars | None  # None: no form needs them
    answer: Body
    bodies: Mapping[str, Body]  # the form of a call's body, by its recipient
    must_call: bool
    only: frozenset[str] | None
    banned: Banned = NOTHING

    def problem(self, messages: Iterable[tuple[Header, str]], called: bool = False) -> str | None:
        """Checks a turn that ended by itself. `called`: it started with a call that the user had approved."""
        answered = False
        for header, text in messages:
            called = called or header.recipient is not None
            answered = answered or (header.recipient is None and header.channel == "final")
            if (problem := self._of_message(header, text)) is not None:
                return problem
        if self.must_call and not called:
            return "The model had to call a tool, but called none."
        if self.answer is not None and not answered and not called:
            return "The model gave no answer, but an answer in the requested format was expected."
        return None

    def _of_message(self, header: Header, text: str) -> str | None:
        recipient = header.recipient
        if recipient is None:
            if self.banned != NOTHING and re.search(self.banned.pattern, text):
                return "The model wrote a text that the request bans."
            return self._of_answer(text) if header.channel == "final" else None
        return self.of_header(header) or self._of_call(recipient, text)

    def of_header(self, header: Header) -> str | None:
        """Why a message with this header must not begin: it is a call that the request does not allow."""
        if self.only is None or header.recipient is None or header.recipient in self.only:
            return None
        return f"The model called '{header.recipient}', which tool_choice does not allow."

    def _of_answer(self, text: str) -> str | None:
        match self.answer:
            case None:
                return None
            case JsonBody(schema):
                problem = self._of_json(schema, text)
                return problem and f"The model's answer does not fit the requested format: {problem}."
            case TextBody(lark):
                assert self.grammars is not None
                fits = self.grammars.matches(self.grammars.compile(lark), text)
                return None if fits else "The model's answer does not follow the requested grammar."
            case _:
                assert_never(self.answer)

    def _of_call(self, recipient: str, text: str) -> str | None:
        body = self.bodies.get(recipient)
        match body:
            case None:
                return None
            case JsonBody(schema):
                problem = self._of_json(schema, text)
                return problem and f"The arguments for '{recipient}' do not fit its schema: {problem}."
            case TextBody(lark):
                assert self.grammars is not None
                fits = self.grammars.matches(self.grammars.compile(lark), text)
                return None if fits else f"The input for '{recipient}' does not follow its grammar."
            case _:
                assert_never(body)

    def _of_json(self, schema: Mapping[str, Any], text: str) -> str | None:
        try:
            value = read_json_text(text)
        except ValueError as error:
            return f"it is not JSON ({error})"
        assert self.grammars is not None
        return JsonCheck(schema, self.grammars).problem(value)
