"""Anthropic's SDK for Python: both clients, streams, typed answers, the tool runner."""

import asyncio
import os

from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from shared import Place, get_weather, report

where = {"base_url": os.environ["BASE_URL"].removesuffix("/v1"), "api_key": "any", "max_retries": 0}
asked = {"model": "scripted", "max_tokens": 1000, "thinking": {"type": "adaptive"}}
weather = {**asked, "messages": [{"role": "user", "content": "Weather in Paris?"}]}
client, later = Anthropic(**where), AsyncAnthropic(**where)
tool = {"name": "get_weather", "description": "The weather.", "input_schema": Place.model_json_schema()}


def kinds(message: object) -> list[str]:
    return [block.type for block in message.content]


def streamed(messages: object) -> list[object]:
    with messages.stream(**weather, tools=[tool]) as stream:
        inputs = [event.snapshot for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    return [kinds(message), inputs[-1] == message.content[1].input, message.stop_reason]


@beta_async_tool
async def get_weather_later(city: str) -> str:
    """The weather in a city."""
    return get_weather(city)


async def asynchronous() -> list[object]:
    async with later, later.messages.stream(**weather) as stream:
        text = "".join([text async for text in stream.text_stream])
        runner = later.beta.messages.tool_runner(**weather, tools=[get_weather_later])
        return [text, kinds(await stream.get_final_message()), (await runner.until_done()).content[-1].text]


ran = client.beta.messages.tool_runner(**weather, tools=[beta_tool(get_weather)]).until_done()
report(
    created=[kinds(each.create(**weather, tools=[tool])) for each in (client.messages, client.beta.messages)],
    streamed=[streamed(each) for each in (client.messages, client.beta.messages)],
    parsed=client.messages.parse(**weather, output_format=Place).parsed_output.city,
    run=ran.content[-1].text,
    later=asyncio.run(asynchronous()),
)
