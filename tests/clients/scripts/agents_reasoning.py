"""The Agents SDK for Python on Responses, nothing stored: summaries, sealed reasoning, log-probabilities."""

import asyncio
import json
import os

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def main() -> None:
    client = AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
    settings = ModelSettings(
        reasoning=Reasoning(effort="xhigh", summary="detailed"),
        response_include=["reasoning.encrypted_content"],
        top_logprobs=1,
        store=False,
        extra_body={"cache_salt": "one", "priority": 1},
    )
    model = OpenAIResponsesModel(model="scripted", openai_client=client)
    agent = Agent(name="Guide", model=model, tools=[get_weather], model_settings=settings)
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
    results = {
        "final": streamed.final_output,
        "summary": summary,
        "scored": scored,
        "sealed": len(set(sealed)),
    }
    whole = await Runner.run(agent, [*items, {"role": "user", "content": "And now?"}])
    print(json.dumps({**results, "again": whole.final_output}))


asyncio.run(main())
