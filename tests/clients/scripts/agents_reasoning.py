"""The Agents SDK for Python on Responses: reasoning with nothing stored, and programs with functions."""

import os

from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from shared import get_weather, report_awaited
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


async def programs() -> dict[str, object]:
    client = AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
    model = OpenAIResponsesModel(model="scripted", openai_client=client)
    agent = Agent(name="Guide", model=model, tools=[stock, ProgrammaticToolCallingTool()])
    whole = await Runner.run(agent, "How many?")
    streamed = Runner.run_streamed(agent, "How many?")
    async for _ in streamed.stream_events():
        pass
    return {"answers": [whole.final_output, streamed.final_output], "called": called}


async def reasoning() -> dict[str, object]:
    client = AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
    settings = ModelSettings(
        reasoning=Reasoning(effort="xhigh", summary="detailed"),
        response_include=["reasoning.encrypted_content"],
        top_logprobs=1,
        store=False,
        extra_body={"cache_salt": "one", "priority": 1},
    )
    model = OpenAIResponsesModel(model="scripted", openai_client=client)
    agent = Agent(name="Guide", model=model, tools=[function_tool(get_weather)], model_settings=settings)
    streamed = Runner.run_streamed(agent, "Weather in Paris?")
    summary, scored = "", ""
    async for event in streamed.stream_events():
        if event.type != "raw_response_event":
            continue
        if event.data.type == "response.reasoning_summary_text.delta":
            summary += event.data.delta
        if event.data.type == "response.output_text.delta":
            scored += "".join(score.token for score in event.data.logprobs)
    items = streamed.to_input_list()
    sealed = [item["encrypted_content"] for item in items if item.get("type") == "reasoning"]
    whole = await Runner.run(agent, [*items, {"role": "user", "content": "And now?"}])
    results = {"final": streamed.final_output, "summary": summary, "scored": scored}
    return {**results, "sealed": len(set(sealed)), "again": whole.final_output}


report_awaited(reasoning=reasoning(), programs=programs())
