"""Checks whether a finished turn has the required form, for engines that do not enforce grammars.

llguidance judges texts here as it masks tokens elsewhere: what is enforced and what is checked is the same.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.constraints.grammar import Body, JsonBody, schema_json
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.json_values import MAX_DEPTH, read_json_text, resolve

_EXACT = 2**53  # the first number that JSON's readers may round
_SHOWN = 40  # characters of what does not fit


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
        if (called := header.recipient) is not None:
            unfit = f"The arguments for '{called}' do not fit its schema"
            astray = f"The input for '{called}' does not follow its grammar."
            return self.header_problem(header) or self._problem(self.bodies.get(called), text, unfit, astray)
        unfit = "The model's answer does not fit the requested format"
        astray = "The model's answer does not follow the requested grammar."
        return self._problem(self.answer, text, unfit, astray) if header.channel == "final" else None

    def _problem(self, body: Body, text: str, unfit: str, astray: str) -> str | None:
        if body is None:
            return None
        assert self.grammars is not None
        if not isinstance(body, JsonBody):
            return None if self.grammars.matches(self.grammars.compile(body.lark), text) else astray
        try:
            problem = json_problem(self.grammars, body.schema, read_json_text(text))
        except ValueError as error:
            problem = f"it is not JSON ({error})"
        return problem and f"{unfit}: {problem}."


def json_problem(grammars: Grammars, schema: Mapping[str, Any], value: Any) -> str | None:
    """Why a JSON value does not fit a schema that `schema_support` has read: llguidance judges its text."""
    text = json.dumps(_ordered(value, schema, schema, 0), ensure_ascii=False)
    misfit = grammars.misfit(grammars.compile(f"start: %json {schema_json(schema)}\n"), text)
    if misfit is None:
        return None
    return f"{misfit[:_SHOWN]!r} does not fit where it stands" if misfit else "it is not complete"


def _ordered(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """The value as llguidance wants it: properties in the schema's order, and whole numbers as such."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return value
    if "$ref" in schema:
        return _ordered(value, resolve(root, schema["$ref"]), root, depth + 1)
    if isinstance(value, list):
        first, rest = schema.get("prefixItems", []), schema.get("items")
        schemas = [*first, *[rest] * (len(value) - len(first))]
        return [_ordered(each, of, root, depth + 1) for each, of in zip(value, schemas, strict=False)]
    if not isinstance(value, dict):
        return value
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
    names = dict.fromkeys((*(name for name in properties if name in value), *value))
    return {name: _ordered(value[name], properties.get(name, rest), root, depth + 1) for name in names}
