"""The form of an answer is checked in the playground too, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import inference
from tests.doubles.serving import scripted, serving

pytestmark = pytest.mark.browser

Visiting = Callable[..., Any]
SCHEMA = {
    "type": "object",
    "properties": {"tags": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/tag"}}},
    "required": ["tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["red", "green"]}},
}


def enforce(page: Any, schema: str) -> None:
    page.get_by_role("button", name="Setup").click()
    page.get_by_label("JSON schema, enforced").fill(schema)


def test_an_answer_of_the_model_follows_the_schema(visit: Visiting) -> None:
    with serving(inference.load("tiny")) as url:
        found = visit(url)
        page = found.open()
        enforce(page, json.dumps(SCHEMA))
        page.get_by_text("The server enforces it").wait_for()
        found.ask("Which colours?")
        found.answered()
        page.get_by_text("Follows the schema.").wait_for()
        found.shot("schema")


def test_an_answer_that_breaks_it_is_shown_with_the_place(visit: Visiting) -> None:
    wrong = json.dumps({"tags": ["red", "blue"]})
    with serving(scripted(f"<|channel|>final<|message|>{wrong}<|return|>")) as url:
        found = visit(url)
        page = found.open()
        enforce(page, json.dumps(SCHEMA))
        found.ask("Which colours?")
        found.answered()
        page.get_by_text("Does not follow the schema, at /tags/1").wait_for()
        found.shot("schema-broken")


def test_a_schema_that_cannot_be_enforced_is_explained_before_anything_is_sent(visit: Visiting) -> None:
    with serving(scripted("<|channel|>final<|message|>1<|return|>")) as url:
        found = visit(url)
        page = found.open()
        enforce(page, '{"type": "string", "pattern": "(?=a)b"}')
        page.get_by_text("look-ahead").wait_for()
        page.get_by_label("JSON schema, enforced").fill("{")
        page.get_by_text("The schema of the answer is no valid JSON").wait_for()
        found.problems[:] = [each for each in found.problems if "400" not in each]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"tags": ["red"]}', {"valid": True}),
        ('{"tags": "red"}', {"valid": False, "where": "/tags"}),
        ('{"tags": [], "more": 1}', {"valid": False, "where": "/more", "why": "It is not allowed here."}),
        ("{}", {"valid": False, "where": "/"}),
        ('{"tags": [', {"valid": False, "where": ""}),
    ],
)
def test_the_page_finds_where_a_text_leaves_a_schema(
    visit: Visiting, text: str, verdict: dict[str, Any]
) -> None:
    with serving(scripted("<|channel|>final<|message|>1<|return|>")) as url:
        page = visit(url).open()
        check = "async ([text, schema]) => (await import('./web/lib/schema.js')).checked(text, schema)"
        assert verdict.items() <= page.evaluate(check, [text, SCHEMA]).items()
