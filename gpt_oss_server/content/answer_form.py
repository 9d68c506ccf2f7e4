"""The form of an answer under any of its names, and the strings that no text may contain.

Takes a request's fields and the place of its answer format. Returns an `AnswerFormat`, or raises a 400 that
names the field as the client sent it. It must not know whether the engine can enforce a form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from gpt_oss_server.constraints.text_grammar import choice_grammar
from gpt_oss_server.constraints.wanted import Schema, TextGrammar
from gpt_oss_server.content.nested import check_flat
from gpt_oss_server.content.tools import ANY_OBJECT
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.declarations import ResponseFormat
from gpt_oss_server.http.shared_fields import FormKind
from gpt_oss_server.json_values import read_json_text

_MOST_CHOICES = 10_000


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The format that a request requires of its answer."""

    form: Schema | TextGrammar | None = None
    declared: tuple[ResponseFormat, ...] = ()  # the prompt's declarations


def answer_format(wanted: Mapping[str, Any] | None, where: str = "text.format") -> AnswerFormat:
    if wanted is None:
        return AnswerFormat()
    match wanted.get("type", "text"):
        case "text":
            return AnswerFormat()
        case "json_object":
            return _json_object(wanted.get("schema"), where)
        case "json_schema":
            return _json_schema(wanted, where)
        case kind:
            raise UnsupportedField(
                f"`{where}.type`: {kind!r:.80} is not served by this server. Use 'text', "
                "'json_object' or 'json_schema'.",
                param=where,
            )


def _json_object(schema: Any, where: str) -> AnswerFormat:
    """Any object, or one that fits a schema next to the type, as llama.cpp has it."""
    if schema is None:
        return AnswerFormat(Schema(ANY_OBJECT, where))
    at = f"{where}.schema"
    read = Schema(_schema(schema, at), at)
    return AnswerFormat(read, (ResponseFormat("json_object", schema, None),))


def _json_schema(wanted: Mapping[str, Any], where: str) -> AnswerFormat:
    check_flat(wanted, where, "name")
    name = wanted.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest.at(f"{where}.name", "must be a string.")
    schema = _schema(wanted.get("schema"), f"{where}.schema")
    description = wanted.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest.at(f"{where}.description", "must be a string.")
    read = Schema(schema, f"{where}.schema", strict=wanted.get("strict") is True)
    return AnswerFormat(read, (ResponseFormat(name, schema, description),))


def _schema(schema: Any, where: str) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise InvalidRequest.at(where, "must be a JSON schema object.")
    return schema


def requested_answer(
    forms: Mapping[str, tuple[FormKind, Any]], wanted: Mapping[str, Any] | None, where: str
) -> AnswerFormat:
    """`wanted` is the API's own field for the format, at the place `where`; `forms` are all others."""
    answer = answer_format(wanted, where)
    names = [*([where] if answer.form is not None else []), *forms]
    if len(names) > 1:
        raise InvalidRequest(
            f"`{names[0]}` and `{names[1]}` both set the form of the answer: send one of them.",
            param=names[1],
        )
    for name, (kind, value) in forms.items():
        answer = _read(name, kind, value)
    return answer


def _read(name: str, kind: FormKind, value: Any) -> AnswerFormat:
    if value == "":
        raise InvalidRequest.at(name, "is empty. Leave it out for an answer of any form.")
    match kind:
        case "json_object":
            return AnswerFormat(Schema(ANY_OBJECT, name))
        case "json":
            schema = _schema_or_text(name, value)
            return AnswerFormat(Schema(schema, name), (ResponseFormat("json_object", schema, None),))
        case "regex":
            return AnswerFormat(TextGrammar("regex", value, name))
        case "grammar":
            return AnswerFormat(TextGrammar("ebnf", value, name))
        case "choice":
            if not 0 < len(value) <= _MOST_CHOICES:
                raise InvalidRequest.at(name, f"must have 1 to {_MOST_CHOICES} texts.")
            return AnswerFormat(TextGrammar("lark", choice_grammar(value), name))
        case _:
            assert_never(kind)


def _schema_or_text(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = read_json_text(value)
        except ValueError:
            raise InvalidRequest.at(name, "must be a JSON schema, or one as a text.") from None
    return _schema(value, name)
