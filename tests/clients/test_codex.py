"""The unmodified Codex CLI with scripted turns: it runs its tools, and the server answers its requests."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.clients.running import (
    HELLO,
    PLACE,
    ROOT,
    THINK,
    Agent,
    Recorder,
    abort_in_mid_stream,
    call,
    recorded,
    run,
)
from tests.doubles.serving import scripted

pytestmark = pytest.mark.clients

CONFIG = """\
model = "scripted"
model_provider = "local"
check_for_update_on_startup = false

[model_providers.local]
name = "local"
base_url = "{url}"
wire_api = "responses"
env_key = "LOCAL_KEY"
{provider}
[analytics]
enabled = false
[feedback]
enabled = false
[features]
plugins = false
apps = false
"""
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made by a patch\n*** End Patch\n"
MADE = f"{THINK}<|channel|>final<|message|>I made it.<|return|>"


class Codex(Agent):
    def __init__(self, folder: Path, url: str, *, top: str = "", provider: str = "", more: str = "") -> None:
        super().__init__("codex", folder)
        self.env = {"CODEX_HOME": str(self.home), "LOCAL_KEY": "any", "HOME": str(self.home)}
        config = f"{top}\n{CONFIG.format(url=url, provider=provider)}\n{more}"
        (self.home / "config.toml").write_text(config, encoding="utf-8")

    def arguments(self, *arguments: str) -> list[str]:
        # Its sandbox needs rights that a test lacks; the folder belongs to the test.
        flags = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [self.path, "exec", *flags, *arguments]

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        done = run(self.arguments(*arguments), self.project, env=self.env)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert events[-1]["type"] == "turn.completed"
        return [event["item"] for event in events if event["type"] == "item.completed"]


def messages(items: list[dict[str, Any]]) -> list[str]:
    return [item["text"] for item in items if item["type"] == "agent_message"]


def outputs(recorder: Recorder, kind: str) -> list[dict[str, Any]]:
    return [item for item in recorder.of("/v1/responses")[-1].body["input"] if item["type"] == kind]


def catalogue(folder: Path) -> str:
    """A line of configuration that describes the model: Codex then sends apply_patch as a custom tool."""
    path = folder / "models.json"
    models = ROOT / "gpt_oss_server" / "cli" / "launch" / "codex-models.json"
    path.write_text(models.read_text().replace("gpt-oss-20b", "scripted"))
    return f"model_catalog_json = {json.dumps(str(path))}"


def test_a_shell_call_makes_a_file(tmp_path: Path) -> None:
    preamble = f"{THINK}<|channel|>commentary<|message|>I will make it.<|end|><|start|>assistant"
    shell = call("exec_command", {"cmd": "echo made by a shell > made.txt"}).removeprefix(THINK)
    with recorded(scripted(preamble + shell, MADE, loop=False)) as (url, recorder):
        codex = Codex(tmp_path, url)
        items = codex.items("Make made.txt")
    assert (codex.project / "made.txt").read_text() == "made by a shell\n"
    assert messages(items) == ["I will make it.", "I made it."]
    [output] = outputs(recorder, "function_call_output")
    assert "Process exited with code 0" in json.dumps(output)


def test_a_patch_as_a_custom_tool(tmp_path: Path) -> None:
    patch = f"{THINK}<|channel|>commentary to=functions.apply_patch<|message|>{PATCH}<|call|>"
    with recorded(scripted(patch, MADE, loop=False)) as (url, recorder):
        codex = Codex(tmp_path, url, top=catalogue(tmp_path))
        items = codex.items("Make made.txt")
    assert (codex.project / "made.txt").read_text() == "made by a patch\n"
    assert "file_change" in {item["type"] for item in items}
    kinds = {(tool["type"], tool.get("name")) for tool in recorder.of("/v1/responses")[0].body["tools"]}
    assert ("custom", "apply_patch") in kinds
    assert outputs(recorder, "custom_tool_call_output")


def test_an_mcp_tool(tmp_path: Path) -> None:
    server = str(ROOT / "tests" / "doubles" / "tools" / "echo_server.py")
    more = (
        f"[mcp_servers.echo]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = [{json.dumps(server)}, "stdio"]\nrequired = true\n'
    )
    arguments = json.dumps({"text": "ahoy"})
    turn = f"{THINK}<|channel|>commentary to=mcp__echo.echo <|constrain|>json<|message|>{arguments}<|call|>"
    with recorded(scripted(turn, HELLO, loop=False)) as (url, _):
        items = Codex(tmp_path, url, more=more).items("Say ahoy with the tool")
    [used] = [item for item in items if item["type"] == "mcp_tool_call"]
    assert (used["server"], used["tool"], used["status"]) == ("echo", "echo", "completed")
    assert "ahoy" in json.dumps(used["result"])
    assert messages(items) == ["Hello!"]


def test_a_session_is_resumed(tmp_path: Path) -> None:
    with recorded(scripted(HELLO, MADE, loop=False)) as (url, recorder):
        codex = Codex(tmp_path, url)
        codex.items("Hi, my name is Ada")
        run(codex.arguments("resume", "--last", "Who am I?"), codex.project, env=codex.env)
    history = json.dumps(recorder.of("/v1/responses")[1].body["input"])
    assert "my name is Ada" in history
    assert "Hello!" in history


def test_an_answer_follows_an_output_schema(tmp_path: Path) -> None:
    properties = {"city": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["city"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    with recorded(scripted(PLACE, loop=False)) as (url, recorder):
        items = Codex(tmp_path, url).items("--output-schema", str(tmp_path / "schema.json"), "A city?")
    assert [json.loads(text) for text in messages(items)] == [{"city": "Paris"}]
    assert recorder.of("/v1/responses")[0].body["text"]["format"]["schema"] == schema


def test_an_abort_in_the_middle_of_a_turn_frees_the_slot(tmp_path: Path) -> None:
    abort_in_mid_stream(Codex, tmp_path)


def test_a_web_socket_is_used_if_it_is_configured(tmp_path: Path) -> None:
    shell = call("exec_command", {"cmd": "echo made over a socket > made.txt"})
    with recorded(scripted(shell, MADE, loop=False)) as (url, recorder):
        codex = Codex(tmp_path, url, provider="supports_websockets = true\n")
        assert messages(codex.items("Make made.txt")) == ["I made it."]
    assert (codex.project / "made.txt").read_text() == "made over a socket\n"
    assert not recorder.of("/v1/responses"), "every request must use the socket"


def test_without_a_web_socket_it_switches_to_http_immediately(tmp_path: Path) -> None:
    with recorded(scripted(HELLO, loop=False), Settings(websocket=False)) as (url, recorder):
        codex = Codex(tmp_path, url, provider="supports_websockets = true\n")
        assert messages(codex.items("Hi")) == ["Hello!"]
    assert len(recorder.of("/v1/responses")) == 1
