"""Strands over both APIs: an agent with a tool, its stream, a typed answer."""

import asyncio
import json
import os

from pydantic import BaseModel
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel


class Place(BaseModel):
    """A place."""

    city: str


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


async def results_of(model_class: type) -> dict[str, object]:
    model = model_class(
        client_args={"base_url": os.environ["BASE_URL"], "api_key": "any", "max_retries": 0},
        model_id="scripted",
    )
    options = {"model": model, "callback_handler": None, "system_prompt": "Be brief."}
    whole = await Agent(**options, tools=[get_weather]).invoke_async("Weather in Paris?")
    events = [
        event async for event in Agent(**options, tools=[get_weather]).stream_async("Weather in Paris?")
    ]
    typed = await Agent(**options).invoke_async("A city?", structured_output_model=Place)
    return {
        "whole": str(whole).strip(),
        "streamed": "".join(event["data"] for event in events if "data" in event),
        "typed": typed.structured_output.city,
    }


async def main() -> None:
    results = {"chat": await results_of(OpenAIModel), "responses": await results_of(OpenAIResponsesModel)}
    print(json.dumps(results))


asyncio.run(main())
