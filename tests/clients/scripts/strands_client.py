"""Strands over both APIs: an agent with a tool, its stream, a typed answer."""

import os

from shared import Place, get_weather, report_awaited
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel


async def results_of(model_class: type) -> dict[str, object]:
    where = {"base_url": os.environ["BASE_URL"], "api_key": "any", "max_retries": 0}
    model = model_class(client_args=where, model_id="scripted")
    options = {"model": model, "callback_handler": None, "system_prompt": "Be brief."}
    tools = [tool(get_weather)]
    whole = await Agent(**options, tools=tools).invoke_async("Weather in Paris?")
    events = [event async for event in Agent(**options, tools=tools).stream_async("Weather in Paris?")]
    typed = await Agent(**options).invoke_async("A city?", structured_output_model=Place)
    return {
        "whole": str(whole).strip(),
        "streamed": "".join(event["data"] for event in events if "data" in event),
        "typed": typed.structured_output.city,
    }


report_awaited(chat=results_of(OpenAIModel), responses=results_of(OpenAIResponsesModel))
