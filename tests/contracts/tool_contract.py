"""The contract of every tool. A tool's test module subclasses this and creates the tool.

A session answers any call that the model writes, and closing always ends it. `slow_call` returns a call that
takes long; the test of cancellation skips a tool that has none.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from tools.tool import Session, Tool, ToolCall, ToolOutput

ODD_ARGUMENTS = (
    "", " \n", "null", "true", "-1", "1e999", "NaN", '"text"', "[]", "[[[[]]]]", "{}", "{", '{"a":',
    '{"a": NaN}', '{"a": 1, "a": 2}', '{"": null}', '{"\\ud800": "\\udfff"}',
    '{"query": 5, "id": {}, "cursor": "x", "pattern": [], "code": null, "topn": "many", "loc": -1e300}',
    '{"query": null, "id": null, "cursor": null, "pattern": null, "topn": null, "num_lines": null}',
    "\x00\x01\x02\xff\ufffe", "\ud800 a lone surrogate",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    "{" * 50_000, "[" * 50_000 + "]" * 50_000, json.dumps({"query": "x" * 1_000_000}), "9" * 10_000,
)  # fmt: skip


class ToolContract:
    async def make(self) -> Tool:
        raise NotImplementedError

    def slow_call(self) -> ToolCall | None:
        """A call that takes at least a minute unless it is cancelled."""
        return None

    async def functions(self, tool: Tool) -> list[str]:
        return [function.name for function in tool.declaration.functions] or [""]

    @pytest.fixture
    async def session(self) -> AsyncIterator[Session]:
        self.tool = await self.make()
        session = self.tool.open()
        yield session
        for _ in range(2):  # closing twice is harmless
            await session.close()
        for _ in range(2):
            await self.tool.close()

    async def test_the_declaration_has_valid_recipients_and_json(self, session: Session) -> None:
        declaration = self.tool.declaration
        assert declaration.namespace
        assert not any(character.isspace() or character == "." for character in declaration.namespace)
        names = [function.name for function in declaration.functions]
        assert len(names) == len(set(names))
        for function in declaration.functions:
            assert function.name
            assert not any(character.isspace() or character in ".<>|" for character in function.name)
            json.dumps(function.parameters)

    @pytest.mark.parametrize("number", range(len(ODD_ARGUMENTS)))
    async def test_odd_arguments_never_raise(self, session: Session, number: int) -> None:
        for function in await self.functions(self.tool):
            check_output(await session.run(ToolCall(function, ODD_ARGUMENTS[number])))

    async def test_an_unknown_function_is_a_failed_output(self, session: Session) -> None:
        known = await self.functions(self.tool)
        for function in ("no_such_function", "a.b", "", " ", "🧠", "x" * 10_000):
            if function not in known:
                output = await session.run(ToolCall(function, "{}"))
                check_output(output)
                assert output.failed, function

    async def test_cancelling_a_call_stops_it_and_the_session_continues(self, session: Session) -> None:
        call = self.slow_call()
        if call is None:
            pytest.skip("no call of this tool takes long")
        running = asyncio.ensure_future(session.run(call))
        await asyncio.wait({running}, timeout=0.5)
        assert not running.done()
        began = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - began < 30
        check_output(await session.run(ToolCall((await self.functions(self.tool))[0], "{}")))


def check_output(output: ToolOutput) -> None:
    assert isinstance(output, ToolOutput)
    assert output.text
    json.dumps(output.details)
