"""Chat requests in-process, with predictable ids and clock, and the invariants of every stream of chunks."""

from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gpt_oss_server.apis.chat.fold import Folded
from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from inference.engine import Engine
from tests.doubles.engines.replay import ReplayEngine

Chunk = dict[str, Any]
CLOCK = 1.7e9
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "A function.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def continuing(content: str, **more: Any) -> dict[str, Any]:
    """A request that begins the answer."""
    last = {"role": "assistant", "content": content, **more}
    return {"messages": [*HI["messages"], last], "continue_final_message": True}


def replaying(text: str, **options: Any) -> ReplayEngine:
    return ReplayEngine(load_encoding().encode_special(text), **options)


def service_of(engine: Engine, settings: Settings | None = None, **options: Any) -> ChatService:
    made = Served(
        engine, settings, encoding=load_encoding(), ids=CountingIds(), clock=lambda: CLOCK, **options
    )
    return ChatService(made)


async def prompt_of(**body: Any) -> str:
    return load_encoding().decode(await service_of(replaying(HELLO)).prompt(LOCAL, {**HI, **body}))


async def chunks_of(engine: Engine, settings: Settings | None = None, **body: Any) -> list[Chunk]:
    run = await service_of(engine, settings).start(LOCAL, {**HI, "stream": True, **body})
    return [chunk async for batch in run.chunks() for chunk in batch]


async def completion_of(engine: Engine, settings: Settings | None = None, **body: Any) -> dict[str, Any]:
    run = await service_of(engine, settings).start(LOCAL, {**HI, **body})
    completion = await run.wait()
    ChatCompletion.model_validate(completion)
    return completion


def check_chunks(chunks: list[Chunk], *, sdk_types: bool = True) -> dict[str, Any]:
    folded, ended, begun = Folded(), set[int](), set[int]()
    head = {key: chunks[0][key] for key in ("id", "object", "created", "model")}
    assert head["object"] == "chat.completion.chunk"
    for chunk in chunks:
        assert {key: chunk[key] for key in head} == head, "every chunk has the same head"
        if sdk_types:
            ChatCompletionChunk.model_validate(chunk)
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert index not in ended, "nothing follows the finish reason"
            assert (index in begun) == ("role" not in delta), "the role comes first, and once"
            begun.add(index)
            if choice["finish_reason"] is not None:
                assert delta == {}
                ended.add(index)
            elif "role" not in delta:
                _check_delta(delta)
        folded.feed(chunk)
    assert begun == ended == set(range(len(begun)))
    return folded.completion()


def _check_delta(delta: dict[str, Any]) -> None:
    assert delta, "an empty delta"
    for key in ("content", "reasoning", "reasoning_content"):
        if key in delta:
            assert delta[key], "an empty text"
            delta[key].encode("utf-8")
    for call in delta.get("tool_calls", ()):
        called = call["function" if "function" in call else "custom"]
        assert ("id" in call) == ("name" in called), "id and name once, together"


def message_of(completion: dict[str, Any], index: int = 0) -> dict[str, Any]:
    message: dict[str, Any] = completion["choices"][index]["message"]
    return message


NEXT = "<|start|>assistant"
HELLO = "<|channel|>final<|message|>Hello 東京 🧠!<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city":"Oslo"}<|call|>'
GRAMMAR = {"syntax": "regex", "definition": "[a-z ]+"}
SAY: dict[str, Any] = {
    "type": "custom",
    "custom": {"name": "say", "description": "Says it.", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
