"""AutoGen over Chat: an agent with a tool that reflects on its result, a stream, a typed answer."""

import asyncio
import json
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.models import ModelFamily, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel


class Place(BaseModel):
    city: str


async def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def main() -> None:
    model = OpenAIChatCompletionClient(
        model="scripted",
        base_url=os.environ["BASE_URL"],
        api_key="any",
        max_retries=0,
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": ModelFamily.UNKNOWN,
        },
    )
    options = {"model_client": model, "tools": [get_weather], "reflect_on_tool_use": True}
    whole = await AssistantAgent("guide", **options).run(task="Weather in Paris?")
    agent = AssistantAgent("guide", **options, model_client_stream=True)
    events = [event async for event in agent.run_stream(task="Weather in Paris?")]
    typed = await model.create([UserMessage(content="A city?", source="user")], json_output=Place)
    await model.close()
    results = {
        "whole": whole.messages[-1].content,
        "streamed": "".join(
            event.content for event in events if isinstance(event, ModelClientStreamingChunkEvent)
        ),
        "typed": json.loads(typed.content),
    }
    print(json.dumps(results))


asyncio.run(main())
