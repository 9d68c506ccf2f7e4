"""A tool of one's own, run as the server runs it: a session for each conversation, one call at a time."""

import asyncio
import json

from tools.tool import Declaration, Function, Session, ToolCall, ToolOutput


class Letters:
    declaration = Declaration("letters", "Looks at words.", (Function("count", "Counts letters."),))

    def open(self) -> Session:
        return self

    async def run(self, call: ToolCall) -> ToolOutput:
        return ToolOutput(str(len(json.loads(call.arguments)["word"])))

    async def close(self) -> None: ...


async def main() -> None:
    session = Letters().open()
    output = await session.run(ToolCall("count", '{"word": "harmony"}'))
    print(output.text, output.failed)
    await session.close()


asyncio.run(main())
# prints: 7 False
