"""Stored chat completions: kept where the request has `store: true`, listed, changed and deleted.

Takes completions and queries. Returns the API's objects, or raises an `ApiError`. A completion is stored
before its last chunk is sent.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.errors import CompletionNotFound, InvalidRequest
from gpt_oss_server.http.fields import Body, read_body, required
from gpt_oss_server.http.paging import limit_of, list_of, newest_first, page
from gpt_oss_server.http.shared_fields import check_metadata, shown_metadata
from gpt_oss_server.ids import Ids
from gpt_oss_server.stores.sql.completions import Completion, Completions, StoredCompletion

T = TypeVar("T")
_AT_ONCE = 200  # completions that one read looks at
_EXAMPLE = '{"metadata": {"topic": "demo"}}'


class UpdateCompletion(Body):
    metadata: dict[str, Any] | None = required("The texts that replace the present ones.")


class StoredCompletions:
    """Those that one caller may see."""

    def __init__(self, completions: Completions, ids: Ids) -> None:
        self._completions = completions
        self._ids = ids

    async def keep(self, request: CreateChatCompletion, completion: Completion) -> None:
        metadata = shown_metadata(request.metadata)
        messages = tuple(self._message(message) for message in request.messages)
        await self._completions.put(StoredCompletion({**completion, "metadata": metadata}, messages))

    async def retrieve(self, completion_id: str) -> Completion:
        return _found(await self._completions.get(completion_id), completion_id).completion

    async def update(self, completion_id: str, body: object) -> Completion:
        change = read_body(body, UpdateCompletion, _EXAMPLE)
        check_metadata(change.metadata)
        changed = await self._completions.set_metadata(completion_id, change.metadata or {})
        return _found(changed, completion_id).completion

    async def delete(self, completion_id: str) -> dict[str, Any]:
        _found(await self._completions.delete(completion_id) or None, completion_id)
        return {"id": completion_id, "object": "chat.completion.deleted", "deleted": True}

    async def messages(self, completion_id: str, query: Mapping[str, str]) -> dict[str, Any]:
        stored = _found(await self._completions.get(completion_id), completion_id)
        return page(stored.messages, {"order": "asc", **query})

    async def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of the completions that have the query's model and metadata."""
        order = newest_first({"order": "asc", **query})
        most, after = limit_of(query), query.get("after")
        matching: list[Completion] = []
        while len(matching) <= most:
            looked = await self._completions.page(after, _AT_ONCE, newest_first=order)
            if looked is None:
                raise InvalidRequest.at("after", f": no completion with id {after!r} is stored.")
            matching += [completion for completion in looked if _matches(completion, query)]
            if len(looked) < _AT_ONCE:
                break
            after = str(looked[-1]["id"])
        return list_of(matching[:most], has_more=len(matching) > most)

    def _message(self, message: Any) -> dict[str, Any]:
        """A message of the request as the API lists it: parts of its content are apart."""
        content = message.get("content")
        parts = content if isinstance(content, list) else None
        shown = {"id": self._ids("msg"), **message, "content_parts": parts}
        return {**shown, "content": None} if parts is not None else shown


def _matches(completion: Completion, query: Mapping[str, str]) -> bool:
    if "model" in query and completion.get("model") != query["model"]:
        return False
    metadata = completion.get("metadata") or {}
    wanted = {
        key[9:-1]: value for key, value in query.items() if key.startswith("metadata[") and key[-1] == "]"
    }
    return all(metadata.get(key) == value for key, value in wanted.items())


def _found(stored: T | None, completion_id: str) -> T:
    if stored is None:
        raise CompletionNotFound(
            f"No chat completion with id {completion_id!r} is stored. It may have expired, been deleted, or "
            "been created without store=true.",
            param="completion_id",
        )
    return stored
