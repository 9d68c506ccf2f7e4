"""pydantic-ai over both APIs: tools, a typed answer, a stream, a second turn with its own history."""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from shared import Place, get_weather, report


async def results_of(model_class: type) -> dict[str, object]:
    model = model_class("scripted", provider=OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="any"))
    agent = Agent(model, instructions="Be brief.", tools=[get_weather])
    whole = await agent.run("Weather in Paris?")
    again = await agent.run("And now?", message_history=whole.all_messages())
    async with agent.run_stream("Weather in Paris?") as result:
        streamed = "".join([text async for text in result.stream_text(delta=True)])
    typed = await Agent(model, output_type=Place).run("A city?")
    return {"whole": whole.output, "again": again.output, "streamed": streamed, "typed": typed.output.city}


async def main() -> None:
    report(responses=await results_of(OpenAIResponsesModel), chat=await results_of(OpenAIChatModel))


asyncio.run(main())
