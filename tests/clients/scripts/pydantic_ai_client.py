"""pydantic-ai over both APIs: tools, a typed answer, a stream, a second turn with its own history."""

import asyncio
import json
import os

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Place(BaseModel):
    city: str


async def results_of(model_class: type) -> dict[str, object]:
    model = model_class("scripted", provider=OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="any"))
    agent = Agent(model, instructions="Be brief.")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    whole = await agent.run("Weather in Paris?")
    again = await agent.run("And now?", message_history=whole.all_messages())
    async with agent.run_stream("Weather in Paris?") as result:
        streamed = "".join([text async for text in result.stream_text(delta=True)])
    typed = await Agent(model, output_type=Place).run("A city?")
    return {"whole": whole.output, "again": again.output, "streamed": streamed, "typed": typed.output.city}


async def main() -> None:
    results = {
        "responses": await results_of(OpenAIResponsesModel),
        "chat": await results_of(OpenAIChatModel),
    }
    print(json.dumps(results))


asyncio.run(main())
