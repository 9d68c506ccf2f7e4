"""This server's OpenAPI document: FastAPI's description of the routes, completed. It checks no body."""

import json
import re
import warnings
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gpt_oss_server.http.openapi.operations import TAGS, errors_of, operation_of

Schema = dict[str, Any]
_PART = re.compile(r"{(\w+)(?::path)?}")
_STRING: Schema = {"type": "string"}
_NULLABLE: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}


def _shape(kind: str | None, /, **keys: Schema) -> Schema:
    """The schema of an object with at least these keys; `kind` is the value of its `object` key."""
    known = ({"object": {"const": kind}} if kind else {}) | keys
    return {"type": "object", "properties": known, "required": list(known)}


def _list_of(item: Schema) -> Schema:
    ends = {"first_id": _NULLABLE, "last_id": _NULLABLE, "has_more": {"type": "boolean"}}
    return _shape("list", data={"type": "array", "items": item}, **ends)


_ITEM = _shape(None, type=_STRING)
_STATUSES = ["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]
_OBJECT: Schema = {"type": "object"}
_SHAPES: dict[str, Schema] = {
    "Error": _shape(None, error=_shape(None, message=_STRING, type=_STRING, param=_NULLABLE, code=_NULLABLE)),
    "Response": _shape(
        "response",
        id=_STRING,
        created_at=_COUNT,
        status={"enum": _STATUSES},
        error={"type": ["object", "null"]},
        incomplete_details={"type": ["object", "null"]},
        instructions={},
        model=_STRING,
        output={"type": "array", "items": _ITEM},
        tools={"type": "array", "items": _ITEM},
        usage={"type": ["object", "null"]},
        metadata=_OBJECT,
    ),
    "Items": _list_of(_ITEM),
    "VectorStore": _shape("vector_store", id=_STRING, name=_STRING, created_at=_COUNT, status=_STRING),
    "Files": _list_of(_OBJECT),
    "Containers": _list_of(_OBJECT),
    "File": _shape("file", id=_STRING, bytes=_COUNT, created_at=_COUNT, filename=_STRING, purpose=_STRING),
    "InputTokens": _shape("response.input_tokens", input_tokens=_COUNT),
    "Compaction": _shape("response.compaction", id=_STRING, output={"type": "array", "items": _ITEM}),
    "Deleted": _shape(None, id=_STRING, object=_STRING, deleted={"const": True}),
    "Conversation": _shape("conversation", id=_STRING, created_at=_COUNT, metadata=_OBJECT),
    "Item": _ITEM,
    "ChatCompletion": _shape("chat.completion", id=_STRING, model=_STRING, choices={"type": "array"}),
    "Completion": _shape("text_completion", id=_STRING, model=_STRING, choices={"type": "array"}),
    "Models": _shape("list", data={"type": "array", "items": _OBJECT}),
    "Model": _shape("model", id=_STRING, created=_COUNT, owned_by=_STRING),
}
_PAGE = {
    "after": _STRING,
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "order": {"enum": ["asc", "desc"]},
}
_INCLUDE: dict[str, Schema] = {"include": {"type": "array", "items": _STRING}}
_QUERIES: dict[str, dict[str, Schema]] = {
    "get /v1/responses/{response_id}": {"stream": {"type": "boolean"}, "starting_after": _COUNT, **_INCLUDE},
    "get /v1/responses/{response_id}/input_items": {**_PAGE, **_INCLUDE},
    "get /v1/containers": {**_PAGE, "name": _STRING},
    "get /v1/conversations/{conversation}/items": _PAGE,
    "get /v1/containers/{container}/files": _PAGE,
    "get /v1/vector_stores": _PAGE,
    "get /v1/vector_stores/{store}/files": {**_PAGE, "filter": _STRING},
    "get /v1/vector_stores/{store}/file_batches/{batch}/files": {**_PAGE, "filter": _STRING},
    "get /v1/files": {**_PAGE, "purpose": _STRING},
    "get /v1/skills": _PAGE,
    "get /v1/skills/{skill}/versions": _PAGE,
}
_DOWNLOADS = (
    "get /v1/containers/{container}/files/{file}/content",
    "get /v1/files/{file}/content",
    "get /v1/skills/{skill}/content",
    "get /v1/skills/{skill}/versions/{version}/content",
)
_BINARY: Schema = {"type": "string", "format": "binary"}
_SKILL: Schema = {"multipart/form-data": {"schema": _shape(None, files={"type": "array", "items": _BINARY})}}
_UPLOADS: dict[str, Schema] = {
    "post /v1/containers/{container}/files": {
        "multipart/form-data": {"schema": _shape(None, file=_BINARY)},
        "application/json": {"schema": _shape(None, file_id=_STRING)},
    },
    "post /v1/files": {"multipart/form-data": {"schema": _shape(None, file=_BINARY, purpose=_STRING)}},
    "post /v1/skills": _SKILL,
    "post /v1/skills/{skill}/versions": _SKILL,
    "post /v1/uploads/{upload}/parts": {"multipart/form-data": {"schema": _shape(None, data=_BINARY)}},
}
# Pydantic's names for the bounds of fields with a before-validator, and their JSON Schema names.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def describe(app: FastAPI) -> None:
    """Makes the application serve this document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI documents this way to extend it


def _document(app: FastAPI) -> dict[str, Any]:
    with warnings.catch_warnings():
        # FastAPI gives GET and HEAD of a route the same id; `_complete` gives each its own.
        warnings.filterwarnings("ignore", message="Duplicate Operation ID")
        built = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components: dict[str, Schema] = dict(_SHAPES)
    for path, operations in built["paths"].items():
        for method, operation in operations.items():
            _complete(f"{method} {path}", operation, components)
    built["components"] = {"schemas": components}
    built["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    return built


def _complete(name: str, operation: Schema, components: dict[str, Schema]) -> None:
    method, path = name.split(" ")
    operation["operationId"] = (
        f"{method}_{path.strip('/').replace('/', '_').replace('{', '').replace('}', '')}"
    )
    row = operation_of(name)
    operation["tags"], operation["summary"] = [row.tag], row.summary
    errors = {str(status): _content(meaning, "Error") for status, meaning in errors_of(name).items()}
    operation["responses"] = {
        "200": _answer(name),
        **errors,
        "default": _content("What went wrong.", "Error"),
    }
    if name in _UPLOADS:
        operation["requestBody"] = {"required": True, "content": _UPLOADS[name]}
    if method == "head":
        operation["responses"] = {code: {"description": "No body."} for code in ("200", "default")}
    queries = _QUERIES.get(name, {}).items()
    operation["parameters"] = [
        *({"name": part, "in": "path", "required": True, "schema": _STRING} for part in _PART.findall(path)),
        *({"name": query, "in": "query", "schema": schema} for query, schema in queries),
    ]
    for body in operation.get("requestBody", {}).get("content", {}).values():
        schema = _converted(body["schema"])
        components |= schema.pop("$defs", {})
        if "title" in schema:
            components[schema["title"]] = schema
            body["schema"] = _reference(schema["title"])


def _answer(name: str) -> Schema:
    if name in _DOWNLOADS:
        return {"description": "The file.", "content": {"application/octet-stream": {}}}
    row = operation_of(name)
    answer = _content("The answer.", row.answer)
    if row.streams:
        answer["content"]["text/event-stream"] = {"schema": _STRING}
    return answer


def _content(description: str, shape: str | None) -> Schema:
    schema = _OBJECT if shape is None else _reference(shape)
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _converted(schema: Any) -> Any:
    """Converts a schema of pydantic to standard JSON Schema whose references point into the document."""
    text = json.dumps(schema).replace('"#/$defs/', '"#/components/schemas/')
    return _standard(json.loads(text))


def _standard(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {_BOUNDS.get(key, key): _standard(value) for key, value in schema.items()}
    return [_standard(part) for part in schema] if isinstance(schema, list) else schema
