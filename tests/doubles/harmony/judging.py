"""Samples under a schema, judged by the jsonschema package."""

from __future__ import annotations

from typing import Any

import jsonschema

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.harmony.schemas import Schema


def body(encoding: Encoding, tokens: list[int]) -> str:
    return encoding.decode(tokens).partition("<|message|>")[2].removesuffix("<|return|>")


def judge(schema: Schema) -> Any:
    """An independent implementation."""
    cls = jsonschema.Draft202012Validator
    return cls(schema, format_checker=cls.FORMAT_CHECKER)
