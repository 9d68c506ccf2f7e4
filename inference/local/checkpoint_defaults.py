"""How a checkpoint wishes to be sampled (generation_config.json), for requests that set no value.

Takes its folder. Returns a `Sampling`, which is neutral where the file states nothing, and logs what it does
state. Raises `CheckpointError` for a value that no request could have.
"""

import json
import logging
import math
from pathlib import Path
from typing import Any

from inference.config import VOCABULARY
from inference.engine import CheckpointError, Sampling

_log = logging.getLogger(__name__)
_NUMBERS = {
    "temperature": ("temperature", float, 0, 2),
    "top_p": ("top_p", float, 0, 1),
    "top_k": ("top_k", int, -1, math.inf),
    "repetition_penalty": ("repetition_penalty", float, 0.01, 10),
    "max_new_tokens": ("max_tokens", int, 1, math.inf),
}
_STOPS, _SAMPLES = "eos_token_id", "do_sample"


def generation_defaults(folder: Path) -> Sampling:
    path = folder / "generation_config.json"
    if not path.is_file():
        return Sampling()
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        stated = {key: raw[key] for key in (*_NUMBERS, _STOPS, _SAMPLES) if raw.get(key) is not None}
        fields: dict[str, Any] = {
            _NUMBERS[key][0]: _number(key, value) for key, value in stated.items() if key in _NUMBERS
        }
        stops = _ids(stated.get(_STOPS, []))
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Correct it, or delete it.") from error
    fields["top_k"] = max(fields.get("top_k", 0), 0)
    if stated.get(_SAMPLES) is False:
        fields["temperature"] = 0.0  # whatever temperature it states
    if stated:
        values = ", ".join(f"{key}={json.dumps(value)}" for key, value in stated.items())
        _log.info("%s sets the defaults of requests: %s.", path, values)
    return Sampling(**fields, stop_token_ids=Sampling().stop_token_ids | stops)


def _number(key: str, value: Any) -> Any:
    _, kind, least, most = _NUMBERS[key]
    number = kind(value)
    if not least <= number <= most or number != float(value):
        what = "a whole number" if kind is int else "a number"
        bounds = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
        raise ValueError(f"{key} must be {what} {bounds}, but is {value}")
    return number


def _ids(value: Any) -> frozenset[int]:
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int and 0 <= token < VOCABULARY for token in ids):
        raise ValueError(f"{_STOPS} must be token ids below {VOCABULARY}, but is {value}")
    return frozenset(ids)
