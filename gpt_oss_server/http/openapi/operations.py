"""The words of the OpenAPI document for each operation: its tag, its summary, and its errors."""

from dataclasses import dataclass

TAGS = {
    "Responses": "OpenAI's Responses API: reasoning, tools, streams, stored and background responses.",
    "Conversations": "Items that outlive a response, for `conversation` of a request.",
    "Chat Completions": "OpenAI's Chat Completions, on the same turn as the Responses API.",
    "Messages": "Anthropic's Messages API, on the same run as the Responses API.",
    "Completions": "Plain completions of a text or of token ids, and the tokens of a text.",
    "Decisions": "Questions about an input, answered by probabilities.",
    "Containers": "Files of a conversation's python tool.",
    "Files": "Files that requests, batches and vector stores use.",
    "Skills": "Folders of instructions and programs, which a shell of this server gets.",
    "Vector stores": "Files whose passages are found by their words.",
    "Batches": "Files of requests that are answered when nothing else waits.",
    "Models": "What is served here.",
    "State": "For monitors and load balancers.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    tag: str
    summary: str
    errors: tuple[int, ...] = ()  # besides those that follow from its path and body
    generates: bool = False
    answer: str | None = None  # the shape of the answer in the document; None: an object
    streams: bool = False  # if the request wishes so


TABLE = {
    "post /v1/responses": Operation(
        "Responses", "Create a response", generates=True, answer="Response", streams=True
    ),
    "get /v1/responses/{response_id}": Operation(
        "Responses", "Retrieve a response, or its events", (400,), answer="Response", streams=True
    ),
    "delete /v1/responses/{response_id}": Operation("Responses", "Delete a response", answer="Deleted"),
    "post /v1/responses/input_tokens": Operation(
        "Responses", "Count the tokens of a request", (404,), answer="InputTokens"
    ),
    "post /v1/responses/compact": Operation(
        "Responses", "Compact a conversation", generates=True, answer="Compaction"
    ),
    "post /v1/responses/{response_id}/cancel": Operation(
        "Responses", "Cancel a response", (400,), answer="Response"
    ),
    "get /v1/responses/{response_id}/input_items": Operation(
        "Responses", "List the input of a response", (400,), answer="Items"
    ),
    "get /v1/responses/{response_id}/trace": Operation(
        "Responses", "The tokens of a response, and how they were read", (404,)
    ),
    "post /render": Operation("Responses", "Show the exact prompt of a request", (404,)),
    "post /v1/conversations": Operation("Conversations", "Create a conversation", answer="Conversation"),
    "get /v1/conversations/{conversation}": Operation(
        "Conversations", "Retrieve a conversation", answer="Conversation"
    ),
    "post /v1/conversations/{conversation}": Operation(
        "Conversations", "Change a conversation's metadata", answer="Conversation"
    ),
    "delete /v1/conversations/{conversation}": Operation(
        "Conversations", "Delete a conversation", answer="Deleted"
    ),
    "get /v1/conversations/{conversation}/items": Operation(
        "Conversations", "List the items of a conversation", (400,), answer="Items"
    ),
    "post /v1/conversations/{conversation}/items": Operation(
        "Conversations", "Add items to a conversation", answer="Items"
    ),
    "get /v1/conversations/{conversation}/items/{item}": Operation(
        "Conversations", "Retrieve an item", answer="Item"
    ),
    "delete /v1/conversations/{conversation}/items/{item}": Operation(
        "Conversations", "Delete an item", answer="Conversation"
    ),
    "post /v1/chat/completions": Operation(
        "Chat Completions", "Create a chat completion", generates=True, answer="ChatCompletion", streams=True
    ),
    "get /v1/chat/completions": Operation("Chat Completions", "List the stored completions", (400,)),
    "get /v1/chat/completions/{completion}": Operation("Chat Completions", "Retrieve a stored completion"),
    "post /v1/chat/completions/{completion}": Operation("Chat Completions", "Change its metadata"),
    "delete /v1/chat/completions/{completion}": Operation("Chat Completions", "Delete a stored completion"),
    "get /v1/chat/completions/{completion}/messages": Operation("Chat Completions", "List its messages"),
    "post /v1/messages": Operation("Messages", "Create a message", generates=True, streams=True),
    "post /v1/messages/count_tokens": Operation("Messages", "Count the tokens of a message", (404,)),
    "post /v1/completions": Operation(
        "Completions", "Continue a text or token ids", generates=True, answer="Completion", streams=True
    ),
    "post /v1/decisions": Operation("Decisions", "Answer questions about an input", generates=True),
    "post /v1/moderations": Operation("Decisions", "Judge texts by categories", generates=True),
    "post /tokenize": Operation("Completions", "Turn a text or messages into token ids", (404,)),
    "post /detokenize": Operation("Completions", "Turn token ids into text", (404,)),
    "get /tokenizer_info": Operation("Completions", "Describe the tokenizer"),
    "get /v1/models": Operation("Models", "List the models", answer="Models"),
    "get /v1/models/{name}": Operation("Models", "Describe a model", answer="Model"),
    "post /models/load": Operation("Models", "Load a model", (400, 404, 503)),
    "post /models/unload": Operation("Models", "Unload a model", (400, 404)),
    "get /v1/containers": Operation("Containers", "List the containers", (400,), answer="Containers"),
    "post /v1/containers": Operation("Containers", "Create a container"),
    "get /v1/containers/{container}": Operation("Containers", "Retrieve a container"),
    "delete /v1/containers/{container}": Operation("Containers", "Delete a container", answer="Deleted"),
    "get /v1/containers/{container}/files": Operation(
        "Containers", "List the files of a container", (400,), answer="Files"
    ),
    "post /v1/containers/{container}/files": Operation("Containers", "Upload a file"),
    "get /v1/containers/{container}/files/{file}": Operation("Containers", "Describe a file"),
    "delete /v1/containers/{container}/files/{file}": Operation(
        "Containers", "Delete a file", answer="Deleted"
    ),
    "get /v1/containers/{container}/files/{file}/content": Operation("Containers", "Download a file"),
    "post /v1/files": Operation("Files", "Create a file", answer="File"),
    "get /v1/files": Operation("Files", "List the files", (400,), answer="Files"),
    "get /v1/files/{file}": Operation("Files", "Retrieve a file", answer="File"),
    "delete /v1/files/{file}": Operation("Files", "Delete a stored file", answer="Deleted"),
    "get /v1/files/{file}/content": Operation("Files", "Download a stored file"),
    "post /v1/uploads": Operation("Files", "Begin to upload a file in parts"),
    "post /v1/uploads/{upload}/parts": Operation("Files", "Upload a part"),
    "post /v1/uploads/{upload}/complete": Operation("Files", "Join the parts to a file"),
    "post /v1/uploads/{upload}/cancel": Operation("Files", "Cancel an upload", (400,)),
    **{
        f"{method} /v1/skills{path}": Operation("Skills", summary, errors, answer=answer)
        for method, path, summary, errors, answer in (
            ("post", "", "Create a skill", (), None),
            ("get", "", "List the skills", (400,), None),
            ("get", "/{skill}", "Retrieve a skill", (), None),
            ("post", "/{skill}", "Choose the default version", (), None),
            ("delete", "/{skill}", "Delete a skill", (), "Deleted"),
            ("get", "/{skill}/content", "Download the default version", (), None),
            ("post", "/{skill}/versions", "Add a version", (), None),
            ("get", "/{skill}/versions", "List the versions", (400,), None),
            ("get", "/{skill}/versions/{version}", "Retrieve a version", (), None),
            ("delete", "/{skill}/versions/{version}", "Delete a version", (400,), "Deleted"),
            ("get", "/{skill}/versions/{version}/content", "Download a version", (), None),
        )
    },
    **{
        f"{method} /v1/vector_stores{path}": Operation("Vector stores", summary, errors, answer=answer)
        for method, path, summary, errors, answer in (
            ("post", "", "Create a vector store", (), "VectorStore"),
            ("get", "", "List the vector stores", (400,), None),
            ("get", "/{store}", "Retrieve a vector store", (), "VectorStore"),
            ("post", "/{store}", "Change a vector store", (), "VectorStore"),
            ("delete", "/{store}", "Delete a vector store", (), "Deleted"),
            ("post", "/{store}/search", "Search a vector store", (), None),
            ("post", "/{store}/files", "Add a file to a vector store", (), None),
            ("get", "/{store}/files", "List the files of a vector store", (400,), None),
            ("get", "/{store}/files/{file}", "Retrieve a file of a vector store", (), None),
            ("post", "/{store}/files/{file}", "Change a file's attributes", (), None),
            ("delete", "/{store}/files/{file}", "Remove a file from a vector store", (), "Deleted"),
            ("get", "/{store}/files/{file}/content", "Retrieve the text of a file", (), None),
            ("post", "/{store}/file_batches", "Add files to a vector store", (), None),
            ("get", "/{store}/file_batches/{batch}", "Retrieve a batch of files", (), None),
            ("post", "/{store}/file_batches/{batch}/cancel", "Cancel a batch of files", (), None),
            ("get", "/{store}/file_batches/{batch}/files", "List the files of a batch", (400,), None),
        )
    },
    "post /v1/batches": Operation("Batches", "Create a batch of requests", (404,)),
    "get /v1/batches": Operation("Batches", "List the batches", (400,)),
    "get /v1/batches/{batch}": Operation("Batches", "Retrieve a batch"),
    "post /v1/batches/{batch}/cancel": Operation("Batches", "Cancel a batch"),
    "post /v1/messages/batches": Operation("Messages", "Create a batch of messages"),
    "get /v1/messages/batches": Operation("Messages", "List the batches of messages", (400,)),
    "get /v1/messages/batches/{batch}": Operation("Messages", "Retrieve a batch of messages"),
    "delete /v1/messages/batches/{batch}": Operation("Messages", "Delete a batch of messages", (400,)),
    "post /v1/messages/batches/{batch}/cancel": Operation("Messages", "Cancel a batch of messages"),
    "get /v1/messages/batches/{batch}/results": Operation(
        "Messages", "Stream the results of a batch", (400,)
    ),
    "get /metrics": Operation("State", "Figures for Prometheus"),
    "get /live": Operation("State", "Whether the process answers"),
    "get /health": Operation("State", "Whether the engine can generate, with the server's counters", (503,)),
    "get /ready": Operation("State", "Whether the server takes requests now", (503,)),
}
_MEANINGS = {
    400: "The request is wrong; the message names the field, and the code the kind of fault.",
    404: "What the request names does not exist here.",
    413: "The body is larger than `--max-body-bytes`.",
    500: "The engine failed, or its answer lacks the required form.",
    503: "The model is still loading, or too many requests wait; `retry-after` says when to try again.",
}
_OF_GENERATION = (404, 500, 503)


def operation_of(name: str) -> Operation:
    """The row of an operation; a HEAD has its GET's. Routes that an embedder adds have none."""
    return TABLE.get(name.replace("head ", "get ", 1), Operation("Other", name))


def errors_of(name: str) -> dict[int, str]:
    """The statuses of an operation's errors, and what they mean."""
    row = operation_of(name)
    statuses = {*row.errors, *(_OF_GENERATION if row.generates else ())}
    if "{" in name:
        statuses.add(404)
    if name.startswith("post ") and not name.endswith("/cancel"):
        statuses |= {400, 413}
    return {status: _MEANINGS[status] for status in sorted(statuses)}
