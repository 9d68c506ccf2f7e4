"""The requests in usual words: each expected call follows from its request and its declarations."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator

from recipe.evaluation.evaluate import Case, usual_cases
from recipe.evaluation.outcome import outcome
from recipe.text import stock
from recipe.text.vocabulary import encoding


def request_of(case: Case) -> str:
    return (
        encoding().decode(list(case.prompt)).rpartition("<|start|>user<|message|>")[2].partition("<|end|>")[0]
    )


def test_every_expected_call_has_a_declared_function_and_words_of_the_request() -> None:
    cases = list(usual_cases())
    assert len(cases) == 160
    assert len({request_of(case) for case in cases}) == len(cases)
    for case in cases:
        wanted = outcome(case.expected, encoding().decode(list(case.prompt)))
        assert wanted is not None, request_of(case)
        assert wanted.recipient is not None
        (tool,) = [tool for tool in case.talk.tools if f"functions.{tool.name}" == wanted.recipient]
        schema = tool.parameters
        assert schema is not None
        Draft202012Validator({"additionalProperties": False, **schema}).validate(wanted.arguments)
        for name, value in wanted.arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            options = schema["properties"][name].get("enum", ())
            known = isinstance(value, bool) or text.lower() in request_of(case).lower()
            assert known or value in options, (request_of(case), name)


def test_the_stock_contains_no_request_with_a_value() -> None:
    texts = "\n".join(path.read_text("utf-8") for path in stock.FOLDER.iterdir()).lower()
    requests = [
        request_of(case) for case in usual_cases() if "{}" not in encoding().decode(list(case.expected))
    ]
    assert len(requests) > 140
    assert not [request for request in requests if request.lower() in texts]
