"""Claude Agent SDK: a question, a conversation with a tool of this program, and a refused call."""

import asyncio
import os

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    ThinkingBlock,
    create_sdk_mcp_server,
    query,
    tool,
)
from claude_agent_sdk.types import PermissionResultDeny
from shared import get_weather, report

where = {
    "ANTHROPIC_BASE_URL": os.environ["BASE_URL"].removesuffix("/v1"),
    "ANTHROPIC_API_KEY": "any",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


@tool("get_weather", "The weather in a city.", {"city": str})
async def weather(arguments: dict[str, str]) -> dict[str, object]:
    return {"content": [{"type": "text", "text": get_weather(arguments["city"])}]}


async def refuse(name: str, arguments: object, context: object) -> PermissionResultDeny:
    return PermissionResultDeny(message=f"{name} is not for you")


async def main() -> None:
    options = ClaudeAgentOptions(
        model="scripted",
        env=where,
        mcp_servers={"local": create_sdk_mcp_server("local", tools=[weather])},
        allowed_tools=["mcp__local__get_weather"],
        can_use_tool=refuse,
    )
    seen = []
    async with ClaudeSDKClient(options) as client:
        for prompt in ("Weather in Paris?", "Write it down"):
            await client.query(prompt)
            seen += [message async for message in client.receive_response()]
    plain = ClaudeAgentOptions(model="scripted", env=where)
    seen += [message async for message in query(prompt="Hi", options=plain)]
    blocks = [block for message in seen if isinstance(message, AssistantMessage) for block in message.content]
    report(
        answers=[message.result for message in seen if isinstance(message, ResultMessage)],
        thoughts=sorted({block.thinking for block in blocks if isinstance(block, ThinkingBlock)}),
    )


asyncio.run(main())
