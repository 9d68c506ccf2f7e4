"""The pages of the APIs: paths, request fields, answers as served, and what each reads of lists and objects.

Takes nothing. Returns a function for each page.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from generate_pages import fields
from generate_pages.answers import container_examples, examples
from generate_pages.markdown import NOTE, code, sentence, table
from generate_pages.operations import paths
from gpt_oss_server.apis.batches.batches import CreateBatch
from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.apis.chat.stored import UpdateCompletion
from gpt_oss_server.apis.completions.request import CreateCompletion
from gpt_oss_server.apis.completions.tokenizer import DetokenizeRequest, TokenizeOptions
from gpt_oss_server.apis.containers.sessions import CreateContainer
from gpt_oss_server.apis.conversations.conversations import (
    CreateConversation,
    CreateItems,
    UpdateConversation,
)
from gpt_oss_server.apis.decisions.request import CreateDecision
from gpt_oss_server.apis.files.files import CreateFile
from gpt_oss_server.apis.files.uploads import CompleteUpload, CreateUpload
from gpt_oss_server.apis.messages.request import CreateMessage
from gpt_oss_server.apis.moderations.api import CreateModeration
from gpt_oss_server.apis.responses.request import CreateResponse, includable
from gpt_oss_server.apis.vector_stores.stores import (
    Attach,
    AttachMany,
    CreateStore,
    Search,
    UpdateFile,
    UpdateStore,
)
from gpt_oss_server.items.table import Kinds

KINDS = Kinds.of()
_ERRORS = "The [errors](../errors.md) have codes of their own."


def responses_page() -> str:
    return f"""{NOTE}
# Responses

{paths("Responses")}
{_ERRORS} [Output items](responses-items.md) and [events](responses-events.md) have pages of their own;
[Reasoning](../reasoning.md), [What is stored](../state.md) and [WebSocket](../websocket.md) explain more.

## The request

`POST /v1/responses`, `/v1/responses/input_tokens`, `/v1/responses/compact` and `/render` take the same
fields.

{fields.parts(CreateResponse)}
## Items of `input`

{_items()}
An `item_reference`, or an object with `id` alone, stands for a stored item. Any other type is a 400.

## Tools

{_tools()}
Any other type is a 400: declare it as a function, and run it on the client's side.

## Values of `include`

{_list(includable(KINDS))}
Those of items that this server never produces have no effect.

## The answer

{examples("Responses")}"""


def chat_page() -> str:
    return f"""{NOTE}
# Chat Completions: fields and answers

{paths("Chat Completions")}
{_ERRORS} [Chat Completions](../chat-completions.md) explains what becomes of the model's messages.

## The request

{fields.parts(CreateChatCompletion)}
## A stored completion

`POST /v1/chat/completions/{{completion}}` changes it.

{fields.served(UpdateCompletion)}
## The answers

{examples("Chat Completions")}"""


def messages_page() -> str:
    return f"""{NOTE}
# Messages: fields

{paths("Messages")}
Errors have the API's own form. [Messages](../messages.md) explains blocks, thinking and conversations.

## The request

`POST /v1/messages/count_tokens` takes the fields that decide the prompt.

{fields.parts(CreateMessage)}"""


def completions_page() -> str:
    return f"""{NOTE}
# Completions and tokens

{paths("Completions")}
{_ERRORS}

## The request of `POST /v1/completions`

{fields.parts(CreateCompletion)}
## The request of `POST /tokenize`

{fields.served(TokenizeOptions)}
## The request of `POST /detokenize`

{fields.served(DetokenizeRequest)}
## The answers

{examples("Completions")}"""


def decisions_page() -> str:
    return f"""{NOTE}
# Decisions: fields

{paths("Decisions")}
{_ERRORS} [Decisions](../decisions.md) explains the probabilities.

## The request

{fields.served(CreateDecision)}
## The request of `POST /v1/moderations`

{fields.served(CreateModeration)}"""


def conversations_page() -> str:
    return f"""{NOTE}
# Conversations

{paths("Conversations")}
{_ERRORS} [What is stored](../state.md#conversations) explains what joins a conversation. Items are those of
[`input`](responses.md#items-of-input) and [`output`](responses-items.md).

## The request of `POST /v1/conversations`

{fields.served(CreateConversation)}
## The request of `POST /v1/conversations/{{conversation}}`

{fields.served(UpdateConversation)}
## The request of `POST /v1/conversations/{{conversation}}/items`

{fields.served(CreateItems)}
Lists take `after` (the id of an item), `limit` (1 to 100, by default 20) and `order` (`asc`, or `desc`, the
default).

## The answers

{examples("Conversations")}"""


def containers_page() -> str:
    return f"""{NOTE}
# Containers

{paths("Containers")}
{_ERRORS} A container holds the files of a conversation's python, in `/mnt/data`. It exists only on the
server that made it.

## The request of `POST /v1/containers`

{fields.parts(CreateContainer)}
## The request of `POST /v1/containers/{{container}}/files`

A form (`multipart/form-data`) with `file`, or JSON with the `file_id` of a file that was uploaded before.

## The answers

{container_examples()}"""


def files_page() -> str:
    return f"""{NOTE}
# Files and uploads

{paths("Files")}
{_ERRORS} [Files](../files.md) explains where they are kept, and for how long.

## The form of `POST /v1/files`

`file` is the file, with a name. `expires_after[seconds]` and `expires_after[anchor]` are fields of a form.

{fields.parts(CreateFile)}
## The request of `POST /v1/uploads`

{fields.served(CreateUpload)}
`POST /v1/uploads/{{upload}}/parts` takes a form with the field `data`, of 64 MiB at most.

## The request of `POST /v1/uploads/{{upload}}/complete`

{fields.served(CompleteUpload)}
Lists take `after`, `limit` (1 to 10,000, the default), `order` and `purpose`.

## Skills

{paths("Skills")}
[Skills](../python-tool.md#skills) explains what they are. A form has `files[]`, or one zip file as `files`,
and perhaps, for a further version, `default`. The body of `POST /v1/skills/{{skill}}` has
`default_version`. Lists take `after`, `limit` (1 to 100; 20) and `order`.
"""


def vector_stores_page() -> str:
    bodies = {
        "": CreateStore,
        "/{store}": UpdateStore,
        "/{store}/search": Search,
        "/{store}/files": Attach,
        "/{store}/file_batches": AttachMany,
        "/{store}/files/{file}": UpdateFile,
    }
    requests = (  # one for each path
        f"## The request of `POST /v1/vector_stores{path}`\n\n{fields.parts(body)}"
        for path, body in bodies.items()
    )
    return f"""{NOTE}
# Vector stores

{paths("Vector stores")}
{_ERRORS} [Files](../files.md#vector-stores) explains how files are read and found.

{"".join(requests)}"""


def batches_page() -> str:
    return f"""{NOTE}
# Batches

{paths("Batches")}
{_ERRORS} [Batches](../batches.md) explains how the requests are answered.

## The request of `POST /v1/batches`

{fields.served(CreateBatch)}
## A line of the file

`{{"custom_id": "a name of its own", "method": "POST", "url": "the endpoint", "body": {{…}}}}`, with the body
that the endpoint takes. A line of the answers has `id`, `custom_id`, and either `response` (`status_code`,
`request_id`, `body`) or `error` (`code`, `message`). Lists take `after` and `limit` (1 to 100; 20).
"""


API_PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/responses.md": responses_page,
    "docs/reference/chat.md": chat_page,
    "docs/reference/messages.md": messages_page,
    "docs/reference/completions.md": completions_page,
    "docs/reference/decisions.md": decisions_page,
    "docs/reference/conversations.md": conversations_page,
    "docs/reference/containers.md": containers_page,
    "docs/reference/files.md": files_page,
    "docs/reference/vector-stores.md": vector_stores_page,
    "docs/reference/batches.md": batches_page,
}


def _items() -> str:
    return _grouped({kind: _doc(item.read) for kind, item in KINDS.items.items()})


def _tools() -> str:
    texts = {}
    for kind, tool in KINDS.tools.items():
        hosted = KINDS.hosted_tool(kind)
        known = [code(field.name) for field in hosted.fields] if hosted is not None else []
        texts[kind] = _doc(tool.read) + (f" It takes {', '.join(known)}." if known else "")
    return _grouped(texts)


def _grouped(texts: Mapping[str, str]) -> str:
    """A row for each text, with the types that it describes."""
    rows = [(", ".join(code(kind) for kind in texts if texts[kind] == text), text) for text in texts.values()]
    return table(("type", "what it is"), dict.fromkeys(rows))


def _doc(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function)
    assert text, f"{function.__name__} has no docstring"
    return sentence(text)


def _list(names: frozenset[str]) -> str:
    return "".join(f"- {code(name)}\n" for name in sorted(names))
