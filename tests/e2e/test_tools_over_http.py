"""Built-in tools through the official SDK over HTTP: browser, python and MCP in mid-generation."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from gpt_oss_server.settings import Settings
from tests.doubles.apis import api_client
from tests.doubles.apis.api_client import streamed
from tests.doubles.apis.asking import call as called
from tests.doubles.tools.echo_server import Seen
from tests.doubles.tools.echo_server import serving as serving_mcp
from tests.tools.python.conftest import needs_bubblewrap

SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"harbour depth"}<|call|>'
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
WEB: Any = [{"type": "web_search"}]
PYTHON: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]
OUTPUTS: Any = ["code_interpreter_call.outputs"]


def python(code: str) -> str:
    return called("python", code, kind=" code", channel="analysis")


def shell(*commands: str) -> str:
    return called("shell.exec", json.dumps({"commands": commands}))


def echo(text: str) -> str:
    return called("echoes.echo", json.dumps({"text": text}))


def client_of(*turns: object, **settings: Any) -> AbstractContextManager[OpenAI]:
    given = Settings(**{"python": "off", "browser": "off", **settings})
    return api_client.client_of(*turns, settings=given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "harbour.md").write_text("# The harbour\n\nIts depth is 40 metres.\n\nShips come.\n")
    (tmp_path / "bridge.txt").write_text("The bridge has two towers.\n")
    return tmp_path


@pytest.fixture(scope="module")
def sandboxed() -> None:
    needs_bubblewrap()


PYTHON_FAILURES = {
    "an exception": ("1 / 0", "completed"),
    "an endless loop": ("while True: pass", "failed"),
    "huge output": ("print('x' * 5_000_000)", "completed"),
    "control characters and half characters": ("print(chr(0) + chr(0xd800) + chr(0x2028))", "completed"),
    "the end of its kernel": ("import os; os._exit(1)", "failed"),
    "Harmony's own tokens": ("print('<|end|><|start|>assistant<|channel|>final<|message|>')", "completed"),
}


@pytest.fixture(scope="module")
def runs_any(sandboxed: None) -> Iterator[OpenAI]:
    """On a model that runs the code of the case that it is asked for."""
    codes = [{"when": f"Run {case}", "text": python(code)} for case, (code, _) in PYTHON_FAILURES.items()]
    turns: list[Any] = [{"when": "python to=assistant", "text": ANSWER}, *codes]
    with client_of(*turns, python="bubblewrap", python_timeout=3.0) as client:
        yield client


@pytest.mark.parametrize("case", PYTHON_FAILURES)
def test_the_stream_is_well_formed_for_any_code(runs_any: OpenAI, case: str) -> None:
    code, status = PYTHON_FAILURES[case]
    response = streamed(runs_any, input=f"Run {case}", tools=PYTHON, include=OUTPUTS)
    call, message = response["output"]
    assert call["status"] == status
    assert code.startswith(call["code"])  # Harmony's own tokens cut it
    assert 0 < len(json.dumps(call["outputs"])) < 2_000_000
    assert message["content"][0]["text"] == "Done."
    assert response["status"] == "completed"


@pytest.fixture(scope="module")
def echoes() -> Iterator[str]:
    with serving_mcp(Seen()) as url:
        yield url


def mcp() -> list[Any]:
    return [{"type": "mcp", "server_label": "echoes", "require_approval": "never"}]


def test_three_kinds_of_tools_in_one_response(sandboxed: None, folder: Path, echoes: str) -> None:
    turns = (SEARCH, python("print(40 * 2)"), echo("80"), ANSWER)
    settings = {"browser": f"local:{folder}", "python": "bubblewrap", "mcp": (f"echoes={echoes}",)}
    with client_of(*turns, **settings) as client:
        output = streamed(client, input="Go.", tools=[*WEB, *PYTHON, *mcp()])["output"]
    kinds = ["mcp_list_tools", "web_search_call", "code_interpreter_call", "mcp_call", "message"]
    assert [item["type"] for item in output] == kinds
    assert {item.get("status", "completed") for item in output} == {"completed"}


def test_a_shell_runs_here_in_the_container_of_python(sandboxed: None) -> None:
    turns = (shell("echo 42 > n", "cat n; exit 3"), python("print(open('n').read())"), ANSWER, ANSWER)
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}, *PYTHON]
    with client_of(*turns, python="bubblewrap") as client:
        response = streamed(client, input="Go.", tools=tools, include=OUTPUTS)
        call, printed, code, _ = response["output"]
        assert (call["type"], call["action"]["commands"]) == ("shell_call", ["echo 42 > n", "cat n; exit 3"])
        assert (printed["type"], printed["call_id"]) == ("shell_call_output", call["call_id"])
        assert printed["output"] == [
            {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "42\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
        ]
        assert code["outputs"][0]["logs"].strip() == "42"
        container = call["environment"]["container_id"]
        assert container == code["container_id"]
        assert [file.path for file in client.containers.files.list(container)] == ["/mnt/data/n"]
        follow = [{"role": "user", "content": "Go."}, *response["output"], {"role": "user", "content": "On."}]
        bodies = ({"input": follow}, {"previous_response_id": response["id"], "input": "On."})
        prompts = [client.post("/../render", body={**body, "tools": tools}, cast_to=dict) for body in bodies]
        for prompt in prompts:
            assert "shell.exec to=assistant<|channel|>commentary<|message|>" in prompt["text"]
            assert "functions.shell" not in prompt["text"]


def test_a_shell_runs_in_a_container_that_is_named(sandboxed: None) -> None:
    with client_of(shell("cat given.txt"), ANSWER, python="bubblewrap") as client:
        container = client.containers.create(name="mine").id
        client.containers.files.create(container, file=("given.txt", b"a gift"))
        environment = {"type": "container_reference", "container_id": container}
        tools = [{"type": "shell", "environment": environment}]
        call, printed, _ = streamed(client, input="Go.", tools=tools, tool_choice={"type": "shell"})["output"]
        assert call["environment"] == environment
        assert printed["output"][0]["stdout"] == "a gift"
        environment["container_id"] = "cntr_0"
        with pytest.raises(NotFoundError, match="There is no container"):
            client.responses.create(input="Go.", tools=[{"type": "shell", "environment": environment}])
