"""The code interpreter: gpt-oss's python tool, the items of its calls, and the names of its containers.

Takes the python settings, a request's `code_interpreter` tool, and calls. Returns the tool, its options, and
the builder of each call's item. It must not know how code runs; `tools.python` does.

A container, `cntr_…`, holds the python files of a conversation. Its name opens the files, so it cannot be
derived from the id of a response: it depends on a secret of this process, as the sessions of containers begin
and end in it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gpt_oss_server.content.tools import Tool
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import check_served
from gpt_oss_server.http.unserved import EMPTY, NotServed, only
from gpt_oss_server.items.builder import EventTexts, Item, ItemBuilder, ServerCall
from gpt_oss_server.items.hosted import HostedCall, HostedTool, Maker, PastCall
from gpt_oss_server.json_values import dicts_of
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.documents.files import Files
from tools.sessions import SessionLimits
from tools.tool import Attached, Declaration, ToolOutput
from tools.toolbox import Offer, offer_of

if TYPE_CHECKING:
    from tools.python import Sandbox

_SPARED = 300.0  # seconds in which no client's files give way to another's
_OUTPUTS = "code_interpreter_call.outputs"
_CONTAINER = "cntr_"
_SECRET = secrets.token_bytes(32)
_DIGITS = 32
MOST_FILES = 50  # of a container

CONTAINER_NOT_SERVED: NotServed = {
    "memory_limit": (only("1g"), 'Python here has one gigabyte of memory: "1g".'),
    "network_policy": (only({"type": "disabled"}), "Python here has no network."),
    "skills": (EMPTY, 'Name them in the container of a shell: {"type": "container_auto", "skills": […]}.'),
}


class InContainer(HostedTool):
    """A tool that runs in a container, into which a request's files are copied."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files

    def lacks(self, options: Mapping[str, Any], *, here: bool) -> bool:
        return bool(options.get("file_ids")) and not here

    async def bound(self, options: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
        if self._files is None or not options.get("file_ids"):
            return options
        files, named = self._files.of(owner), dict[str, Attached]()
        for file_id in dict.fromkeys(options["file_ids"]):
            name = (await files.find_readable(file_id, "tools")).filename.rpartition("/")[2] or file_id
            name = f"{file_id}-{name}" if name in named else name
            named[name] = Attached(file_id, name, partial(files.left, file_id))
        return {**options, "files": tuple(named.values())}

    def declared(self, declaration: Declaration, options: Mapping[str, Any]) -> Declaration:
        names = ", ".join(file.name for file in options.get("files", ()))
        text = f"{declaration.description or ''}\n\nThe user's files are in /mnt/data: {names}"
        return replace(declaration, description=text) if names else declaration


class CodeInterpreter(InContainer):
    """A given `sandbox` replaces the one that the settings name."""

    namespace = "python"
    types = ("code_interpreter",)
    off = "The python tool is off. Start with --python auto."
    channel = "analysis"
    in_system_message = True
    item_type = "code_interpreter_call"
    id_prefix = "ci"
    includable = (_OUTPUTS,)

    def __init__(self, sandbox: Sandbox | None = None, files: Files | None = None) -> None:
        super().__init__(files)
        self._sandbox = sandbox

    def maker(self, settings: Settings) -> Maker | None:
        if settings.python == "off" and self._sandbox is None:
            return None

        async def make() -> Offer | None:
            from tools.python import PythonTool, choose_sandbox, program, shell

            sandbox = self._sandbox or await choose_sandbox(settings.python, image=settings.python_image)
            if sandbox is None:
                return None
            timeout = settings.python_timeout
            tool = PythonTool(sandbox, timeout=timeout, memory=settings.python_memory)
            sessions = SessionLimits(
                count=settings.python_max_sessions,
                per_owner=settings.python_max_sessions_per_client,
                spared=_SPARED,
            )
            return offer_of(tool, timeout, sessions=sessions, also=(shell.DECLARATION, program.DECLARATION))

        return make

    def options(self, tool: Tool, where: str) -> Mapping[str, Any]:
        value, at = tool.get("container"), f"{where}.container"
        if isinstance(value, str) and value.startswith(_CONTAINER):
            return {"container": value}
        if value is not None and not (isinstance(value, Mapping) and value.get("type") == "auto"):
            raise InvalidRequest.at(at, 'must be {"type": "auto"}, or the id of a container.')
        return read_new_container(value or {}, at)

    def echo(self, tool: Tool) -> dict[str, Any]:
        return {**tool, "container": tool.get("container") or {"type": "auto"}}

    def item(self, call: HostedCall) -> ItemBuilder:
        return CodeInterpreterBuilder(call)

    def past_call(self, item: Item) -> PastCall:
        logs = [output.get("logs", "") for output in dicts_of(item.get("outputs"))]
        return PastCall("", str(item.get("code") or ""), "".join(map(str, logs)))


class CodeInterpreterBuilder(ServerCall):
    """A call of python, whose code streams."""

    about = "A run of python on this server."
    about_events: ClassVar[EventTexts] = {
        "response.code_interpreter_call.in_progress": "A call of python begins.",
        "response.code_interpreter_call_code.delta": "More code.",
        "response.code_interpreter_call_code.done": "The code is complete.",
        "response.code_interpreter_call.interpreting": "The code runs.",
        "response.code_interpreter_call.completed": "The code has run, or failed: the item states which.",
    }
    kind = "code_interpreter_call"
    runs = "interpreting"
    written = ("response.code_interpreter_call_code", "code")

    def __init__(self, call: HostedCall) -> None:
        super().__init__(call.id)
        self._container_id = container_id(call.conversation)
        self._shows_outputs = _OUTPUTS in call.include

    def item(self, status: str, text: str, output: ToolOutput | None = None) -> Item:
        outputs = output.details.get("outputs", ()) if output is not None and self._shows_outputs else None
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            "code": text,
            "container_id": self._container_id,
            "outputs": None if outputs is None else list(outputs),
        }


def container_id(conversation: str) -> str:
    """The name of the container that holds a conversation's python files."""
    return _CONTAINER + hmac.new(_SECRET, conversation.encode(), hashlib.sha256).hexdigest()[:_DIGITS]


def conversation_of(container: str, among: Iterable[str]) -> str:
    """The one of these conversations whose container has this name; "" if none has."""
    name = container.encode()
    named = (one for one in among if hmac.compare_digest(container_id(one).encode(), name))
    return next(named, "")


def read_new_container(value: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The options of a container that a tool brings with it. Refuses what it cannot have here."""
    check_served(value, CONTAINER_NOT_SERVED, f"{where}.")
    ids = [] if value.get("file_ids") is None else value["file_ids"]
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids) or len(ids) > MOST_FILES:
        raise InvalidRequest.at(f"{where}.file_ids", f"must be a list of at most {MOST_FILES} ids of files.")
    return {"file_ids": ids} if ids else {}
