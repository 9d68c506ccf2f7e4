"""The names of containers: `cntr_…` for the python files of a conversation, or of a container on its own.

Takes a conversation's name or a request's `container`. Converts between the names of conversations and
containers, and parses requests that create a container. A container on its own is a conversation without
messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.fields import Body, Integer, read_body
from gpt_oss_server.http.unserved import NotServed

PREFIX = "cntr_"
IDLE_MINUTES = 20  # a session ends, and loses its files, after this time without a call
_RESPONSE, _CONVERSATION = "resp_", "conv_"  # the prefixes of a conversation's name
_UPLOAD = (
    "Make a container with POST /v1/containers, and put files there with POST /v1/containers/{id}/files."
)


def container_id(conversation: str) -> str:
    """The name of the container that holds a conversation's python files."""
    return PREFIX + conversation.removeprefix(_RESPONSE)


def conversation_of(container: str) -> str:
    """The conversation of a container's name; "" for any other name."""
    name = container.removeprefix(PREFIX)
    conversation = name if name.startswith(_CONVERSATION) else _RESPONSE + name
    return conversation if container_id(conversation) == container else ""


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
    anchor: Literal["last_active_at"]
    minutes: Annotated[Integer, Field(ge=1, le=IDLE_MINUTES)]


_NOT_SERVED: NotServed = {
    "file_ids": (lambda v: not v, f"Files are not kept outside of containers here. {_UPLOAD}"),
    "memory_limit": (lambda v: v == "1g", 'Python here has one gigabyte of memory: "1g".'),
    "network_policy": (lambda v: v == {"type": "disabled"}, "Python here has no network."),
    "skills": (lambda v: not v, "Leave it out, and upload files to the container."),
}


class CreateContainer(Body):
    """Every field may be left out. A container lasts for 20 minutes after its last use."""

    not_served: ClassVar[NotServed] = _NOT_SERVED

    name: str | None = None
    expires_after: ExpiresAfter | None = None


def parse_container(body: object) -> CreateContainer:
    return read_body(body, CreateContainer, '{"name": "data"}')
