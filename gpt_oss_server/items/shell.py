"""The shell: several commands at a time, which the client runs, or this server in a container of Python; and
the local shell before it, which has one command at a time.

Takes the declared tool, or a call and its output of a request, or JSON as the model writes it. Returns a
`ClientTool` or the hosted tool, segments, or the items and their events. It must not know how commands run;
`tools.python` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic_core import to_json

from gpt_oss_server.content.skills import bound_skills, local_skills, read_skills
from gpt_oss_server.content.tools import RequestTools, Tool, check, described, object_schema, shaped_tool
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.items.builder import (
    Event,
    EventTexts,
    Item,
    ItemBuilder,
    ShapedCall,
    WholeItem,
    json_object,
    strings,
    typed,
)
from gpt_oss_server.items.code_interpreter import InContainer, container_id, read_new_container
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.hosted import HostedCall
from gpt_oss_server.items.kind import ItemKind, ToolType, completed, shaped_kind
from gpt_oss_server.stores.documents.files import Files
from gpt_oss_server.stores.documents.skills import Skills
from tools.skills import MOUNT, listed
from tools.tool import Declaration, ToolOutput

_RECIPIENT = "shell.exec"  # of calls that run here
_AUTO, _REFERENCE = "container_auto", "container_reference"
_LIMITS: Item = {"timeout_ms": None, "max_output_length": None}


def _call(id_: str, call_id: str | None, arguments: Item, status: str, environment: Item) -> Item:
    return {
        "id": id_,
        "type": "shell_call",
        "status": status,
        "call_id": call_id,
        "action": {
            "commands": strings(arguments.get("commands")),
            **_LIMITS,
            **typed(arguments, timeout_ms=int, max_output_length=int),
        },
        "environment": environment,
    }


def _command_events(item: Item) -> list[Event]:
    events: list[Event] = []
    for index, command in enumerate(item["action"]["commands"]):
        event = {"type": "response.shell_call_command", "command_index": index}
        events.append({**event, "type": f"{event['type']}.added", "command": ""})
        events += [{**event, "type": f"{event['type']}.delta", "delta": command}] if command else []
        events.append({**event, "type": f"{event['type']}.done", "command": command})
    return events


class ShellBuilder(ShapedCall):
    prefix = "sh"
    about = (
        "A call of `shell`: the client runs and answers it with a `shell_call_output`, or its output follows."
    )
    about_events: ClassVar[EventTexts] = {
        "response.shell_call_command.added": "A command of a shell call follows.",
        "response.shell_call_command.delta": "The command.",
        "response.shell_call_command.done": "The command is complete.",
    }

    def item(self, arguments: Item, status: str) -> Item:
        return _call(self.id, self._call_id, arguments, status, {"type": "local"})

    def fits(self, arguments: Item) -> bool:
        return bool(strings(arguments.get("commands")))

    def events(self, item: Item) -> list[Event]:
        return _command_events(item)


class HostedShellBuilder(ItemBuilder):
    """A call that runs here, and its output, an item of its own."""

    about = ShellBuilder.about
    about_events = ShellBuilder.about_events
    runs_here = True

    def __init__(self, call: HostedCall) -> None:
        super().__init__(call.id)
        suffix = call.id.partition("_")[2]
        self._call_id, self._output_id = f"call_{suffix}", f"sho_{suffix}"
        self._environment = {"type": _REFERENCE, "container_id": container_id(call.conversation)}
        self._arguments: Item = {}

    def _item(self, status: str) -> Item:
        return _call(self.id, self._call_id, self._arguments, status, self._environment)

    def open(self) -> tuple[Item, list[Event]]:
        return self._item("in_progress"), []

    def called(self, arguments: str) -> list[Event]:
        self._arguments = json_object(arguments)
        return _command_events(self._item("in_progress"))

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        return [], self._item("completed")

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        item = {
            "id": self._output_id,
            "type": "shell_call_output",
            "status": "completed",
            "call_id": self._call_id,
            "output": list(output.details.get("output", ())) or [_refused(output.text)],
            "max_output_length": None,
            **typed(self._arguments, max_output_length=int),
        }
        return [ShellOutput(item)]

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        self._arguments = self._arguments or json_object(text)
        return [], self._item("incomplete")


def _refused(why: str) -> Item:
    """The output of commands that did not run."""
    return {"stdout": "", "stderr": why, "outcome": {"type": "exit", "exit_code": 126}}


class ShellOutput(WholeItem):
    """What the commands of a call wrote."""

    about = "What the commands of a `shell_call` wrote that ran on this server."
    about_events: ClassVar[EventTexts] = {
        "response.shell_call_output_content.delta": "What a command wrote.",
        "response.shell_call_output_content.done": "The command has ended.",
    }

    def open(self) -> tuple[Item, list[Event]]:
        return {**self._item, "status": "in_progress", "output": []}, []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        events: list[Event] = []
        for index, output in enumerate(self._item["output"]):
            event = {"type": "response.shell_call_output_content", "command_index": index}
            delta = {name: output[name] for name in ("stdout", "stderr") if output[name]}
            events += [{**event, "type": f"{event['type']}.delta", "delta": delta}] if delta else []
            events.append({**event, "type": f"{event['type']}.done", "output": [output]})
        return events, self._item


_LINES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DESCRIPTION = "Runs shell commands on the user's machine and returns what each wrote and its exit code."
_ARGUMENTS = object_schema(
    ["commands"],
    commands={**_LINES, "description": 'One or more lines for the shell, e.g. ["ls -l"].'},
    timeout_ms=described("integer", "The most milliseconds they may take."),
    max_output_length=described("integer", "The most characters of output to return."),
)


class Shell(InContainer):
    namespace = "shell"
    types = ("shell",)
    off = (
        "A shell runs in the containers of python, which is off. Start with --python auto, or run the "
        'commands on your side: {"environment": {"type": "local"}}.'
    )
    item_type = "shell_call"
    id_prefix = "sh"

    def __init__(self, files: Files | None = None, skills: Skills | None = None) -> None:
        super().__init__(files)
        self._skills = skills

    def kind(self) -> ItemKind:
        """Of both: where a request names no container, the client runs the calls."""
        hosted = super().kind().tools[0]

        def read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
            """A shell that the client runs, or this server in a container."""
            check(tool, where, "environment", dict, "an object")
            environment = {"type": "local"} if tool.get("environment") is None else tool["environment"]
            if environment.get("type") in (_AUTO, _REFERENCE):
                return hosted.read(tool, where, tools)
            if environment.get("type") != "local":
                at = f"{where}.environment.type"
                raise InvalidRequest.at(at, f"must be 'local', '{_AUTO}' or '{_REFERENCE}'.")
            skills = local_skills(environment, f"{where}.environment.skills")
            return tools.declare(shaped_tool(tool, where, _DESCRIPTION + skills, _ARGUMENTS))

        client = shaped_kind(
            "shell",
            "action",
            ShellBuilder,
            "sho",
            read_tool,
            listed=_listed_call,
            listed_output=lambda item: completed({"max_output_length": None, **item}),
        )
        call, output = client.items
        read_local = call.read

        def read_call(item: Item, where: str, conversation: Conversation) -> None:
            """A call that the model made of this tool, whose action is what the model wrote."""
            environment = item.get("environment")
            is_hosted = isinstance(environment, dict) and environment.get("type") == _REFERENCE
            if not is_hosted or not isinstance(item.get("action"), dict):
                return read_local(item, where, conversation)
            written = to_json({key: value for key, value in item["action"].items() if value is not None})
            return conversation.call(where, item, _RECIPIENT, written.decode(), "json")

        types = (ToolType("shell", read_tool, ShellBuilder, namespace=self.namespace),)
        return ItemKind((replace(call, read=read_call), output), types)

    def options(self, tool: Tool, where: str) -> Mapping[str, Any]:
        environment, at = tool["environment"], f"{where}.environment"
        if environment["type"] == _AUTO:
            skills = environment.get("skills") or []
            options = read_new_container({**environment, "skills": None}, at)
            return {**options, "skills": read_skills(skills, f"{at}.skills")} if skills else options
        if not isinstance(environment.get("container_id"), str):
            raise InvalidRequest.at(f"{at}.container_id", "must be the id of a container.")
        return {"container": environment["container_id"]}

    def lacks(self, options: Mapping[str, Any], *, here: bool) -> bool:
        return super().lacks(options, here=here) or (bool(options.get("skills")) and not here)

    async def bound(self, options: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
        options = await super().bound(options, owner)
        if self._files is None or self._skills is None or not options.get("skills"):
            return options
        stores = (self._skills.of(owner), self._files.of(owner))
        return {**options, "skills": await bound_skills(options["skills"], *stores)}

    def declared(self, declaration: Declaration, options: Mapping[str, Any]) -> Declaration:
        declared = super().declared(declaration, options)
        skills = ((each.name, f"{MOUNT}/{each.name}", each.description) for each in options.get("skills", ()))
        return replace(declared, description=f"{declared.description or ''}{listed(skills)}")

    def item(self, call: HostedCall) -> ItemBuilder:
        return HostedShellBuilder(call)


def _listed_call(item: Item) -> Item:
    item = completed({"environment": None, **item})
    return {**item, "action": {**_LIMITS, **item["action"]}}


class LocalShellBuilder(ShapedCall):
    prefix = "lsh"
    about = "A call of `local_shell`, which the client runs and answers with a `local_shell_call_output`."

    def item(self, arguments: Item, status: str) -> Item:
        env = arguments.get("env")
        action: Item = {
            "type": "exec",
            "command": strings(arguments.get("command")),
            "env": {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {},
        }
        action |= typed(arguments, timeout_ms=int, user=str, working_directory=str)
        return {
            "id": self.id,
            "type": "local_shell_call",
            "status": status,
            "call_id": self._call_id,
            "action": action,
        }

    def fits(self, arguments: Item) -> bool:
        return bool(strings(arguments.get("command")))


_LOCAL_DESCRIPTION = "Runs a command on the user's machine and returns its output."
_LOCAL_ARGUMENTS = object_schema(
    ["command"],
    command={**_LINES, "description": 'The program and its arguments, e.g. ["bash", "-lc", "ls"].'},
    working_directory=described("string", "Where to run it."),
    timeout_ms=described("integer", "The most milliseconds it may take."),
    env={"type": "object", "additionalProperties": {"type": "string"}},
    user=described("string", "The user to run it as."),
)


def _read_local(tool: Tool, where: str, tools: RequestTools) -> None:
    """A tool that the client runs, whose shape the API fixes."""
    tools.declare(shaped_tool(tool, where, _LOCAL_DESCRIPTION, _LOCAL_ARGUMENTS))


LOCAL_SHELL = shaped_kind("local_shell", "action", LocalShellBuilder, "lsho", _read_local)
