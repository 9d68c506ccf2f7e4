"""Makes schemas.json from OpenAI's published OpenAPI document.

    python tests/doubles/published/extract.py openapi.yaml

The extract (of https://github.com/openai/openai-openapi, MIT, at f85dbe2, August 2026) keeps only the schemas
for this server's answers, without descriptions and examples.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOTS = [
    "Response", "ResponseStreamEvent", "ResponseItemList", "ResponseWsError", "TokenCountsResource",
    "CompactResource", "ErrorResponse", "ConversationResource", "ConversationItemList",
    "DeletedConversationResource", "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse",
    "CreateCompletionResponse", "ListModelsResponse",
]  # fmt: skip
_PROSE = {"description", "example", "examples", "title", "externalDocs"}
_NAMES = {"properties", "patternProperties", "mapping"}  # whose keys are names, not keywords


def referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.rpartition("/")[2]
            else:
                yield from referred(value)
    elif isinstance(schema, list):
        for part in schema:
            yield from referred(part)


def bare(schema: Any, *, names: bool = False) -> Any:
    if isinstance(schema, dict):
        kept = {k: v for k, v in schema.items() if names or not (k in _PROSE or k.startswith("x-"))}
        made = {key: bare(value, names=key in _NAMES and not names) for key, value in kept.items()}
        if not names and made.pop("nullable", False):  # an OpenAPI keyword that JSON Schema lacks
            return {"anyOf": [made, {"type": "null"}]}
        return made
    return [bare(part) for part in schema] if isinstance(schema, list) else schema


def extract(document: Any) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    found: set[str] = set()
    waiting = ROOTS[:]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += referred(schemas[name])
    return {name: bare(schemas[name]) for name in sorted(found)}


if __name__ == "__main__":
    import yaml  # not needed for the tests

    document = yaml.load(Path(sys.argv[1]).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    pairs = extract(document).items()
    lines = [f"{json.dumps(name)}:{json.dumps(schema, separators=(',', ':'))}" for name, schema in pairs]
    target = Path(__file__).with_name("schemas.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
