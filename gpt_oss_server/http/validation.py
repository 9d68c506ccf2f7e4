"""Faults of a request's fields, as one sentence that names the field."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json

from gpt_oss_server.errors import InvalidRequest

_MOST_DIGITS = 18  # Python refuses to convert several thousand
_JSON_TYPES = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_BOUNDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
}


def json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "something else")


def path(location: Sequence[int | str]) -> str:
    """`tools[0].name` from ("tools", 0, "name"), without the names of union members."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "[" not in part and part not in ("str", "dict", "list", "int", "float"):
            text += f".{part}" if text else part
    return text


def sentence_for(error: ValidationError) -> tuple[str, str | None]:
    """Returns the first finding as a sentence, and its parameter."""
    findings = error.errors(include_url=False)
    name = path(findings[0]["loc"])
    # A field may take one value or a list of them. A finding within it means that the client sent a list.
    within = [f for f in findings if path(f["loc"]).startswith((f"{name}[", f"{name}."))]
    if name and within:
        findings, name = within, path(within[0]["loc"])
    same = [f for f in findings if path(f["loc"]) == name]
    expected = list(dict.fromkeys(_EXPECTED[f["type"]] for f in same if f["type"] in _EXPECTED))
    if expected and len(same) >= 1 and findings[0]["type"] in _EXPECTED:
        got = json_type(findings[0]["input"])
        return f"Invalid type for `{name}`: expected {' or '.join(expected)}, but got {got}.", name or None
    return _one(findings[0], name), name or None


def _one(finding: ErrorDetails, name: str) -> str:
    bound = _BOUNDS.get(finding["type"])
    if bound:
        return f"Invalid value for `{name}`: it must be {bound.format(**finding.get('ctx', {}))}."
    if finding["type"] == "literal_error":
        return f"Invalid value for `{name}`: expected one of {finding['ctx']['expected']}."
    if finding["type"] == "missing":
        return f"`{name}` is missing."
    message = finding["msg"].removeprefix("Value error, ")
    return f"Invalid value for `{name}`: {message}."


def json_text(value: Mapping[str, Any], key: str, where: str) -> str:
    """Returns the JSON under `key` of the object at `where`, which may be its text or an object."""
    value_at = value.get(key)
    if isinstance(value_at, str):
        return value_at
    if not isinstance(value_at, dict):
        raise InvalidRequest.at(f"{where}.{key}", "must be a string of JSON, or an object.")
    return to_json(value_at).decode()


def text_field(value: Mapping[str, Any], key: str, where: str) -> str:
    """Returns the text under `key` of the object at `where`; raises a 400 if it is missing or empty."""
    text = value.get(key)
    if not isinstance(text, str) or not text:
        raise InvalidRequest.at(f"{where}.{key}", "must be a non-empty string.")
    return text


def whole_number(text: str) -> int | None:
    """The number that `text` spells in digits; None for any other text or too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
