"""The names of containers: `cntr_…` for the python files of a conversation, or of a container on its own.

Takes a conversation's name or a request's `container`. Returns the container of a conversation, and parses
requests that create a container. A container on its own is a conversation without messages. The name of one
opens its files, so it cannot be derived from the id of a response: it depends on a secret of this process, as
the sessions of containers begin and end in it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.fields import Body, Integer, optional, read_body, required
from gpt_oss_server.http.unserved import EMPTY, NotServed, only

PREFIX = "cntr_"
IDLE_MINUTES = 20  # a session ends, and loses its files, after this time without a call
_SECRET = secrets.token_bytes(32)
_DIGITS = 32
_UPLOAD = (
    "Make a container with POST /v1/containers, and put files there with POST /v1/containers/{id}/files."
)


def container_id(conversation: str) -> str:
    """The name of the container that holds a conversation's python files."""
    return PREFIX + hmac.new(_SECRET, conversation.encode(), hashlib.sha256).hexdigest()[:_DIGITS]


def conversation_of(container: str, among: Iterable[str]) -> str:
    """The one of these conversations whose container has this name; "" if none has."""
    given = container.encode()
    return next((each for each in among if hmac.compare_digest(container_id(each).encode(), given)), "")


def container_of(given: Any, where: str) -> str | None:
    """The container that a code_interpreter tool names; None: the conversation's own."""
    if given is None:
        return None
    if isinstance(given, str) and given.startswith(PREFIX):
        return given
    if not isinstance(given, Mapping) or given.get("type") != "auto":
        raise InvalidRequest(f'`{where}` must be {{"type": "auto"}}, or the id of a container.', param=where)
    if given.get("file_ids"):
        raise UnsupportedField(
            f"`{where}.file_ids`: files are not kept outside of containers here. {_UPLOAD}",
            param=f"{where}.file_ids",
        )
    return None


class ExpiresAfter(Body):
    anchor: Literal["last_active_at"] = required("Always `last_active_at`.")
    minutes: Annotated[Integer, Field(ge=1, le=IDLE_MINUTES)] = required(
        "Minutes after the last use. The container ends after 20 in any case."
    )


_NOT_SERVED: NotServed = {
    "file_ids": (EMPTY, f"Files are not kept outside of containers here. {_UPLOAD}"),
    "memory_limit": (only("1g"), 'Python here has one gigabyte of memory: "1g".'),
    "network_policy": (only({"type": "disabled"}), "Python here has no network."),
    "skills": (EMPTY, "Leave it out, and upload files to the container."),
}


class CreateContainer(Body):
    """Every field may be left out. A container lasts for 20 minutes after its last use."""

    not_served: ClassVar[NotServed] = _NOT_SERVED

    name: str | None = optional("Shown in lists, which can be searched for it.")
    expires_after: ExpiresAfter | None = optional(
        "When the container ends: at most 20 minutes after its last use."
    )


def parse_container(body: object) -> CreateContainer:
    return read_body(body, CreateContainer, '{"name": "data"}')
