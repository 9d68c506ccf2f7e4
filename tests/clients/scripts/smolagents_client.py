"""smolagents over Chat: an agent that calls tools, an agent that writes code, a stream."""

import json
import os

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city's name.
    """
    return f"sunny in {city}"


model = OpenAIModel(model_id="scripted", api_base=os.environ["BASE_URL"], api_key="any")
options = {"tools": [get_weather], "model": model, "max_steps": 3, "verbosity_level": 0}
calling = ToolCallingAgent(**options).run("Weather in Paris?")
streamed = list(ToolCallingAgent(**options, stream_outputs=True).run("Weather in Paris?", stream=True))
coding = CodeAgent(**options).run("Weather in Paris?")
print()  # the agents leave a line open
print(json.dumps({"calling": calling, "streamed": streamed[-1].output, "coding": coding}))
