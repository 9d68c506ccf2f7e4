"""MCP tools that need approval on Chat: requested as a call, given as its answer, and run once."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import ToolsetMaker
from tests.doubles.apis.chat_asking import check_chunks, service_of
from tests.doubles.serving import scripted
from tests.doubles.tools.echo_server import Seen, serving

CALL = '<|channel|>commentary to=echoes.echo <|constrain|>json<|message|>{"text":"hi"}<|call|>'
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
TOOL: dict[str, Any] = {"type": "mcp", "server_label": "echoes", "require_approval": "always"}
FREE = {"require_approval": "never"}
UNREACHABLE = {"server_url": "http://127.0.0.1:9/mcp"}
AGAIN = {"role": "user", "content": "And again?"}
REFUSAL = "The user did not approve this call, so it was not made."


class Talk:
    """A chat about a server whose tool needs approval."""

    def __init__(self, url: str, *turns: str) -> None:
        settings = Settings(python="off", browser="off", allow_private_hosts=True)
        self.tool = {**TOOL, "server_url": url}
        self.chat = service_of(scripted(*turns), settings, tools=ToolsetMaker(settings))

    async def completion(self, *messages: Any, changed: Any = None, **body: Any) -> dict[str, Any]:
        given = {"stream": True, "tools": [{**self.tool, **(changed or {})}], "metadata": {"__debug": True}}
        sent = [{"role": "user", "content": "Say hi."}, *messages]
        run = await self.chat.start(LOCAL, {**given, "messages": sent, **body})
        return check_chunks([chunk async for batch in run.chunks() for chunk in batch])

    async def message(self, *messages: Any, **body: Any) -> dict[str, Any]:
        """The answer, with the prompt that the model read."""
        completion = await self.completion(*messages, **body)
        self.prompt = completion["metadata"]["__debug_input"]
        return dict(completion["choices"][0]["message"])


Talking = Callable[..., Talk]


def approval(message: dict[str, Any], approve: Any = True, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "approve": approve, **more}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Seen()) as url:
        yield url


@pytest.fixture
async def talking(url: str) -> AsyncIterator[Talking]:
    made: list[Talk] = []

    def make(*turns: str) -> Talk:
        made.append(Talk(url, *turns))
        return made[-1]

    yield make
    for talk in made:
        await talk.chat.served.stop()
        await talk.chat.served.close()


async def test_a_call_that_needs_approval_is_marked(talking: Talking) -> None:
    (choice,) = (await talking(CALL).completion())["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call == {
        "id": call["id"],
        "type": "function",
        "function": {"name": "echoes.echo", "arguments": '{"text":"hi"}'},
        "mcp_approval_request": {"server_label": "echoes", "name": "echo"},
    }
    assert "executed_tools" not in choice["message"]


async def test_approval_runs_the_call_and_the_model_continues(talking: Talking) -> None:
    talk = talking(CALL, ANSWER, ANSWER)
    request = await talk.message()
    answer = await talk.message(request, approval(request))
    [ran] = answer["executed_tools"]
    assert (ran["type"], ran["name"], json.loads(ran["arguments"])) == ("mcp", "echoes.echo", {"text": "hi"})
    assert (answer["content"], "tool_calls" in answer) == ("Done.", False)
    result = f"<|start|>echoes.echo to=assistant<|channel|>commentary<|message|>{ran['output']}<|end|>"
    assert "hi" in ran["output"]
    later = await talk.message(request, approval(request), answer, AGAIN)
    assert "executed_tools" not in later, "the call does not run again"
    assert f"{CALL}{result}<|start|>assistant{ANSWER[: -len('<|return|>')]}" in talk.prompt


async def test_an_approved_call_whose_result_is_lost_does_not_run_again(talking: Talking) -> None:
    talk = talking(CALL, ANSWER)
    request = await talk.message()
    done = {"role": "assistant", "content": "Done."}
    answer = await talk.message(request, approval(request, content=""), done, AGAIN)
    assert "no longer known" in talk.prompt
    assert "executed_tools" not in answer


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"approve": False, "content": "Not today."}, f"{REFUSAL} They said: Not today."),
        ({"approve": False}, REFUSAL),
        ({"content": "I ran it myself: hi"}, "I ran it myself: hi"),
    ],
    ids=["refused with a reason", "refused", "answered by the client"],
)
async def test_the_model_reads_why_a_call_did_not_run(talking: Talking, answer: Any, result: str) -> None:
    talk = talking(CALL, ANSWER)
    request = await talk.message()
    call_id = request["tool_calls"][0]["id"]
    last = await talk.message(request, {"role": "tool", "tool_call_id": call_id, **answer})
    assert f"<|channel|>commentary<|message|>{result}<|end|>" in talk.prompt
    assert "executed_tools" not in last


@pytest.mark.parametrize(
    ("approvals", "body", "param"),
    [
        ([True], {"n": 2}, "n"),
        ([True], {"response_prefix": "Well"}, "response_prefix"),
        ([True], {"tools": []}, "messages[2].approve"),
        (["yes"], {}, "messages[2].approve"),
        ([True, True], {}, "messages[3].approve"),
    ],
    ids=str,
)
async def test_a_vain_approval_is_refused(talking: Talking, approvals: Any, body: Any, param: str) -> None:
    talk = talking(CALL, ANSWER)
    request = await talk.message()
    with pytest.raises(InvalidRequest) as refused:
        await talk.completion(request, *(approval(request, approve) for approve in approvals), **body)
    assert refused.value.param == param


@pytest.mark.parametrize("changed", [FREE, {"allowed_tools": ["fail"]}], ids=str)
@pytest.mark.parametrize("approve", [True, False])
async def test_a_past_approval_outlives_changes(talking: Talking, changed: Any, approve: bool) -> None:
    talk = talking(CALL, ANSWER, ANSWER)
    request = await talk.message()
    answered = approval(request, approve, content="")
    first = await talk.message(request, answered)
    second = await talk.message(request, answered, first, AGAIN, changed=changed)
    assert "executed_tools" not in second
    assert f"<|channel|>commentary<|message|>{'hi' if approve else REFUSAL}<|end|>" in talk.prompt


async def test_an_approved_call_runs_if_its_tool_no_longer_needs_approval(talking: Talking) -> None:
    talk = talking(CALL, ANSWER)
    request = await talk.message()
    answer = await talk.message(request, approval(request), changed=FREE)
    assert answer["executed_tools"][0]["output"] == "hi"


async def test_a_server_that_cannot_be_reached_is_an_error(talking: Talking) -> None:
    """Whether or not a call waits for it: nothing else tells the client that the model lacks its tools."""
    talk = talking(CALL, ANSWER)
    request = await talk.message()
    for messages in ((request, approval(request)), ()):
        with pytest.raises(ToolNotAvailable, match="cannot be connected to"):
            await talk.completion(*messages, changed=UNREACHABLE)


async def test_a_server_that_needs_no_approval_runs_immediately(talking: Talking) -> None:
    answer = await talking(CALL, ANSWER).message(changed=FREE)
    assert answer["executed_tools"][0]["name"] == "echoes.echo"


async def test_a_truncated_call_requests_no_approval_and_cannot_be_approved(talking: Talking) -> None:
    talk = talking(CALL, ANSWER)
    (choice,) = (await talk.completion(max_tokens=16))["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "length"
    assert "mcp_approval_request" not in call
    assert call["function"]["arguments"] not in ("", '{"text":"hi"}')
    with pytest.raises(InvalidRequest, match="cut off"):
        await talk.completion(choice["message"], approval(choice["message"]))
