"""The OpenAPI document is sound, and answers are as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.doubles.serving import scripted, serving

HELLO = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(scripted(HELLO)) as url, httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def within(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys and values of a tree."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from within(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from within(inner)


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert {value for key, value in within(document) if key == "$ref"} <= known


def test_schemas_are_in_the_words_of_the_standard(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert not {"ge", "gt", "le", "lt"} & {key for key, _ in within(document["components"])}


def test_each_operation_has_an_id_of_its_own_and_says_what_it_answers(document: dict[str, Any]) -> None:
    told = list(operations(document))
    assert len({operation["operationId"] for _, _, operation in told}) == len(told)
    assert {"200", "default"} == {code for _, _, operation in told for code in operation["responses"]}


def test_every_post_that_takes_a_body_says_so(document: dict[str, Any]) -> None:
    without = {
        path
        for method, path, operation in operations(document)
        if method == "post" and "requestBody" not in operation
    }
    assert without == {"/v1/responses/{response_id}/cancel"}


def test_query_parameters_that_are_read_are_told(document: dict[str, Any]) -> None:
    for path, names in (
        ("/v1/responses/{response_id}", {"stream", "starting_after", "include"}),
        ("/v1/responses/{response_id}/input_items", {"after", "limit", "order", "include"}),
        ("/v1/containers", {"after", "limit", "order", "name"}),
    ):
        told = document["paths"][path]["get"]["parameters"]
        assert {each["name"] for each in told if each["in"] == "query"} == names


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/v1/responses", {"input": "Hi"}),
        ("post", "/v1/responses", {"input": 7}),
        ("post", "/v1/responses/input_tokens", {"input": "Hi"}),
        ("post", "/v1/conversations", {}),
        ("post", "/v1/chat/completions", CHAT),
        ("post", "/v1/completions", {"prompt": "Hi"}),
        ("post", "/tokenize", {"prompt": "Hi"}),
        ("post", "/detokenize", {"tokens": [1]}),
        ("get", "/v1/models", None),
        ("get", "/v1/containers", None),
        ("get", "/health", None),
    ],
)
def test_answers_are_as_it_says(
    method: str, path: str, body: object, client: httpx.Client, document: dict[str, Any]
) -> None:
    answer = client.request(method, path, json=body)
    said = document["paths"][path][method]["responses"]["200" if answer.is_success else "default"]
    schema = said["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())
