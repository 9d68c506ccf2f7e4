"""The local shell: one command at a time, which the client runs.

Takes the declared tool, or a call and its output of a request, or JSON as the model writes it. Returns a
`ClientTool`, segments, or the item and its events.
"""

from gpt_oss_server.content.tools import RequestTools, Tool, described, object_schema, shaped_tool
from gpt_oss_server.items.builder import Item, ShapedCall, strings, typed
from gpt_oss_server.items.kind import shaped_kind


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


_LINES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DESCRIPTION = "Runs a command on the user's machine and returns its output."
_ARGUMENTS = object_schema(
    ["command"],
    command={**_LINES, "description": 'The program and its arguments, e.g. ["bash", "-lc", "ls"].'},
    working_directory=described("string", "Where to run it."),
    timeout_ms=described("integer", "The most milliseconds it may take."),
    env={"type": "object", "additionalProperties": {"type": "string"}},
    user=described("string", "The user to run it as."),
)


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """A tool that the client runs, whose shape the API fixes."""
    tools.declare(shaped_tool(tool, where, _DESCRIPTION, _ARGUMENTS))


LOCAL_SHELL = shaped_kind("local_shell", "action", LocalShellBuilder, "lsho", _read_tool)
