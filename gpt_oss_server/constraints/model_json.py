"""Reads JSON in a text of the model or of a client, so that the value can be stored, sent on and checked."""

from __future__ import annotations

import json
from typing import Any

from gpt_oss_server.json_values import MAX_DEPTH, finite, is_too_deep, no_constant, whole_characters

_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def read_json_text(text: str) -> Any:
    """Raises ValueError with a sentence that explains what is wrong."""
    try:
        value = json.loads(text, parse_constant=no_constant, parse_float=finite)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if is_too_deep(text, value):
        raise ValueError(_TOO_DEEP)
    return whole_characters(text, value)
