"""The Agents SDK for Python: a tool loop, a stream, a typed answer, a handoff, over both APIs."""

import os

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from shared import Place, get_weather, report_awaited

set_tracing_disabled(True)


async def results_of(model_class: type) -> dict[str, object]:
    client = AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
    model = model_class(model="scripted", openai_client=client)
    agent = Agent(name="Guide", instructions="Be brief.", model=model, tools=[function_tool(get_weather)])
    whole = await Runner.run(agent, "Weather in Paris?")
    streamed = Runner.run_streamed(agent, "Weather in Paris?")
    deltas = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    typed = await Runner.run(Agent(name="Typist", model=model, output_type=Place), "A city?")
    expert = Agent(name="Expert", model=model)
    handed = await Runner.run(Agent(name="Desk", model=model, handoffs=[expert]), "An expert, please.")
    session = SQLiteSession("one")
    await Runner.run(expert, "Hi", session=session)
    again = await Runner.run(expert, "Hi again", session=session)
    return {
        "whole": whole.final_output,
        "streamed": [streamed.final_output, "".join(deltas)],
        "typed": typed.final_output.city,
        "handed": [handed.final_output, handed.last_agent.name],
        "session": [again.final_output, len(await session.get_items())],
    }


report_awaited(responses=results_of(OpenAIResponsesModel), chat=results_of(OpenAIChatCompletionsModel))
