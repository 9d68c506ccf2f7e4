"""The OpenAPI document is valid, and answers match it."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.doubles.apis.api_client import APIS
from tests.doubles.serving import scripted, serving

THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
HELLO = f"{THOUGHT}<|channel|>final<|message|>Hello!<|return|>"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        serving(scripted(HELLO)) as url,
        httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def within(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from within(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from within(inner)


def test_references_resolve(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert {value for key, value in within(document) if key == "$ref"} <= known


def test_schemas_use_standard_keywords(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert not {"ge", "gt", "le", "lt"} & {key for key, _ in within(document["components"])}


def test_each_operation_has_a_unique_id_and_describes_its_answers(document: dict[str, Any]) -> None:
    found = list(operations(document))
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    assert all({"200", "default"} <= set(operation["responses"]) for _, _, operation in found)


def test_every_post_with_a_body_describes_it(document: dict[str, Any]) -> None:
    posts = [(path, operation) for method, path, operation in operations(document) if method == "post"]
    without = {path for path, operation in posts if "requestBody" not in operation}
    assert all(path.endswith("/cancel") for path in without)


def test_query_parameters_are_described(document: dict[str, Any]) -> None:
    for path, names in (
        ("/v1/responses/{response_id}", {"stream", "starting_after", "include"}),
        ("/v1/responses/{response_id}/input_items", {"after", "limit", "order", "include"}),
        ("/v1/containers", {"after", "limit", "order", "name"}),
    ):
        parameters = document["paths"][path]["get"]["parameters"]
        assert {each["name"] for each in parameters if each["in"] == "query"} == names


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        *(("post", path, {"input": "Hi"}) for path in ("/v1/responses", "/v1/responses/input_tokens")),
        *(("post", path, {"prompt": "Hi"}) for path in ("/v1/completions", "/tokenize")),
        *(("post", "/v1/conversations", {}), ("post", "/v1/chat/completions", APIS["/chat/completions"])),
        *(("post", "/detokenize", {"tokens": [1]}), ("post", "/v1/responses", {"input": 7})),
        *(("get", path, None) for path in ("/v1/models", "/v1/containers", "/health")),
    ],
)
def test_answers_match_the_document(
    method: str, path: str, body: object, client: httpx.Client, document: dict[str, Any]
) -> None:
    answer = client.request(method, path, json=body)
    described = document["paths"][path][method]["responses"]["200" if answer.is_success else "default"]
    schema = described["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(answer.json())


def test_operations_have_a_tag_and_a_summary(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for method, path, operation in operations(document):
        assert set(operation["tags"]) <= tags, f"{method} {path} has no row in http/openapi_operations.py"
        assert operation["summary"]
    summaries = [each["summary"] for method, _, each in operations(document) if method != "head"]
    assert len(set(summaries)) == len(summaries)


WRONG = [
    ("POST", "/v1/responses", {"input": 1}, 400),
    ("POST", "/v1/responses", {"input": "x", "model": "none"}, 404),
    ("POST", "/v1/chat/completions", {"messages": []}, 400),
    ("GET", "/v1/responses/{response_id}", None, 404),
    ("GET", "/v1/models/{name}", None, 404),
    ("GET", "/v1/containers/{container}/files/{file}/content", None, 404),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), WRONG)
def test_errors_are_documented(
    client: httpx.Client, document: dict[str, Any], method: str, path: str, body: Any, status: int
) -> None:
    answer = client.request(method, re.sub(r"\{\w+\}", "none", path), json=body)
    assert answer.status_code == status, answer.text
    described = document["paths"][path][method.lower()]["responses"][str(status)]
    assert described["description"]
    assert described["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}
