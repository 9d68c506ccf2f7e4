"""Agno over both APIs: an agent with a tool, a stream, a typed answer."""

import os

os.environ["AGNO_TELEMETRY"] = "false"
from agno.agent import Agent
from agno.models.openai import OpenAILike, OpenAIResponses
from shared import Place, get_weather, report


def results_of(model_class: type) -> dict[str, object]:
    model = model_class(id="scripted", base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
    guide = Agent(model=model, tools=[get_weather], instructions="Be brief.", telemetry=False)
    whole = guide.run("Weather in Paris?")
    events = list(guide.run("Weather in Paris?", stream=True))
    typed = Agent(model=model, output_schema=Place, telemetry=False).run("A city?")
    return {
        "whole": whole.content,
        "streamed": "".join(event.content or "" for event in events if event.event == "RunContent"),
        "typed": typed.content.city,
        "tokens": whole.metrics.total_tokens > 0,
    }


report(chat=results_of(OpenAILike), responses=results_of(OpenAIResponses))
