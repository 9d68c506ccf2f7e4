"""Haystack over both APIs: an agent with a tool, a stream, a typed answer."""

import json
import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from shared import Place, get_weather, report


def results_of(generator: type, typing: str) -> dict[str, object]:
    where = {"api_base_url": os.environ["BASE_URL"], "api_key": Secret.from_token("any"), "max_retries": 0}
    where["model"] = "scripted"
    chunks: list[str] = []
    question = [ChatMessage.from_user("Weather in Paris?")]
    tools = [tool(get_weather)]
    whole = Agent(chat_generator=generator(**where), tools=tools, system_prompt="Be brief.").run(question)
    agent = Agent(chat_generator=generator(**where), tools=tools)
    agent.run(question, streaming_callback=lambda chunk: chunks.append(chunk.content or ""))
    typist = generator(**where, generation_kwargs={typing: Place})
    typed = typist.run([ChatMessage.from_user("A city?")])["replies"][0].text
    return {"whole": whole["last_message"].text, "streamed": "".join(chunks), "typed": json.loads(typed)}


report(
    chat=results_of(OpenAIChatGenerator, "response_format"),
    responses=results_of(OpenAIResponsesChatGenerator, "text_format"),
)
