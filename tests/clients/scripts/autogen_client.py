"""AutoGen over Chat: an agent with a tool that reflects on its result, a stream, a typed answer."""

import asyncio
import json
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.models import ModelFamily, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from shared import Place, get_weather, report


async def main() -> None:
    abilities = dict.fromkeys(("function_calling", "json_output", "structured_output"), True)
    model = OpenAIChatCompletionClient(
        model="scripted",
        base_url=os.environ["BASE_URL"],
        api_key="any",
        max_retries=0,
        model_info={**abilities, "vision": False, "family": ModelFamily.UNKNOWN},
    )
    options = {"model_client": model, "tools": [get_weather], "reflect_on_tool_use": True}
    whole = await AssistantAgent("guide", **options).run(task="Weather in Paris?")
    agent = AssistantAgent("guide", **options, model_client_stream=True)
    events = [event async for event in agent.run_stream(task="Weather in Paris?")]
    typed = await model.create([UserMessage(content="A city?", source="user")], json_output=Place)
    await model.close()
    chunks = [event.content for event in events if isinstance(event, ModelClientStreamingChunkEvent)]
    answer = json.loads(typed.content)
    report(whole=whole.messages[-1].content, streamed="".join(chunks), typed=answer)


asyncio.run(main())
