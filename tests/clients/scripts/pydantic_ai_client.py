"""pydantic-ai over three APIs: tools, a typed answer, a stream, a second turn with its own history."""

import os

from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from shared import Place, get_weather, report_awaited

URL = os.environ["BASE_URL"]
OPENAI = OpenAIProvider(base_url=URL, api_key="any")
ANTHROPIC = AnthropicProvider(base_url=URL.removesuffix("/v1"), api_key="any")


async def results_of(model: Model) -> dict[str, object]:
    agent = Agent(model, instructions="Be brief.", tools=[get_weather])
    whole = await agent.run("Weather in Paris?")
    again = await agent.run("And now?", message_history=whole.all_messages())
    async with agent.run_stream("Weather in Paris?") as result:
        streamed = "".join([text async for text in result.stream_text(delta=True)])
    typed = await Agent(model, output_type=Place).run("A city?")
    return {"whole": whole.output, "again": again.output, "streamed": streamed, "typed": typed.output.city}


report_awaited(
    responses=results_of(OpenAIResponsesModel("scripted", provider=OPENAI)),
    chat=results_of(OpenAIChatModel("scripted", provider=OPENAI)),
    messages=results_of(AnthropicModel("scripted", provider=ANTHROPIC)),
)
