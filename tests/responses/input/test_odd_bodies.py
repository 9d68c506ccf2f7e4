"""An odd value anywhere in a request's tools and items: a response or an API error, never a crash."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.json_values import without_lone_surrogates
from tests.doubles.apis.asking import FINAL, Asking
from tests.doubles.apis.client_tools import CRM, DIGITS, EDIT, ITEMS, LOCAL
from tests.doubles.apis.odd_bodies import ODD, answer_or_sentence, places, with_odd

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
    DIGITS,
    CRM,
    LOCAL,
    {"type": "shell", "environment": {"type": "local"}},
    EDIT,
    {"type": "tool_search", "execution": "client", "description": "x", "parameters": {"type": "object"}},
]
TEXTS = [{"type": "input_text", "text": "x"}]
OF_AGENTS: list[dict[str, Any]] = [  # the SDK does not know these
    {"type": "agent_message", "author": "a", "recipient": "b", "content": TEXTS},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
]
CHOICES = ({"type": "custom", "name": "dial"}, {"type": "function", "name": "find", "namespace": "crm"})


WHOLE = ({"tools": TOOLS}, {"input": [*ITEMS, *OF_AGENTS]}, *({"tool_choice": choice} for choice in CHOICES))
PLACES = [(whole, place) for whole in WHOLE for place in places(whole) if place]


@pytest.mark.parametrize("rest", [0, pytest.param(1, marks=pytest.mark.proof)])
@pytest.mark.parametrize("odd", range(len(ODD)), ids=lambda odd: str(ODD[odd]))
async def test_a_request(odd: int, rest: int) -> None:
    """Each value in half of the places, and half of the values in each place; the others are proofs."""
    for whole, place in PLACES[(odd + rest) % 2 :: 2]:
        body = without_lone_surrogates({"tools": TOOLS, **with_odd(whole, place, ODD[odd])})
        assert isinstance(body, dict)
        refused = await answer_or_sentence(Asking(FINAL.format("Hello!"))(**body))
        assert refused is None or refused.status in (400, 404), (place, ODD[odd])
