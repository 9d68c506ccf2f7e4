"""JSON that the model has written: read so that whatever it says can be kept, sent on and checked."""

from __future__ import annotations

import json
import re
from typing import Any

from gpt_oss_server.body import MAX_DEPTH, deeper_than, finite, no_constant, without_lone_surrogates

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json_text(text: str) -> Any:
    """Raises ValueError, whose sentence says what is wrong."""
    try:
        value = json.loads(text, parse_constant=no_constant, parse_float=finite)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    if deeper_than(value, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return without_lone_surrogates(value) if _SURROGATE.search(text) else value
