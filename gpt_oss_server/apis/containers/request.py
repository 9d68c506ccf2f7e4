"""The body of POST /v1/containers. A container on its own is a conversation without messages."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.http.fields import Body, Integer, optional, read_body, required
from gpt_oss_server.http.unserved import EMPTY, NotServed, only
from gpt_oss_server.items.code_interpreter import UPLOAD

IDLE_MINUTES = 20  # a session ends, and loses its files, after this time without a call


class ExpiresAfter(Body):
    anchor: Literal["last_active_at"] = required("Always `last_active_at`.")
    minutes: Annotated[Integer, Field(ge=1, le=IDLE_MINUTES)] = required(
        "Minutes after the last use. The container ends after 20 in any case."
    )


_NOT_SERVED: NotServed = {
    "file_ids": (EMPTY, f"Files are not kept outside of containers here. {UPLOAD}"),
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
