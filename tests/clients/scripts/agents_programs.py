"""The Agents SDK for Python: a program of the model calls a function of the client, whole and in a stream."""

import os

from agents import (
    Agent,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from shared import report_awaited
from typing_extensions import TypedDict

set_tracing_disabled(True)
called = []


class Left(TypedDict):
    left: int


@function_tool(allowed_callers=["programmatic"])
def stock(sku: str) -> Left:
    """How many there are."""
    called.append(sku)
    return {"left": 2}


async def run() -> dict[str, object]:
    client = AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
    model = OpenAIResponsesModel(model="scripted", openai_client=client)
    agent = Agent(name="Guide", model=model, tools=[stock, ProgrammaticToolCallingTool()])
    whole = await Runner.run(agent, "How many?")
    streamed = Runner.run_streamed(agent, "How many?")
    async for _ in streamed.stream_events():
        pass
    return {"answers": [whole.final_output, streamed.final_output], "called": called}


report_awaited(run=run())
