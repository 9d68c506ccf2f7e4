"""LangChain over three APIs: tools, streams, typed answers, its own history sent back."""

import os

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from shared import Place, get_weather, report

STATELESS = {"include": ["reasoning.encrypted_content"], "store": False}
STATELESS["reasoning"] = {"effort": "low", "summary": "auto"}


WHERE = {"model": "scripted", "api_key": "any", "max_retries": 0}
URL = os.environ["BASE_URL"]


def openai(**options: object) -> ChatOpenAI:
    return ChatOpenAI(base_url=URL, **WHERE, **options)


def results_of(model: BaseChatModel) -> dict[str, object]:
    agent = create_agent(model, [tool(get_weather)], system_prompt="Be brief.")
    whole = agent.invoke({"messages": [("user", "Weather in Paris?")]})["messages"]
    again = agent.invoke({"messages": [*whole, ("user", "And now?")]})["messages"]
    streamed = "".join(chunk.text for chunk in model.stream("Hi"))
    typed = model.with_structured_output(Place, method="json_schema").invoke("A city?")
    return {
        "whole": [whole[-1].text, len(whole)],
        "again": again[-1].text,
        "streamed": streamed,
        "typed": typed.city,
        "usage": whole[-1].usage_metadata["total_tokens"] > 0,
    }


report(
    responses=results_of(openai(use_responses_api=True)),
    stateless=results_of(openai(use_responses_api=True, **STATELESS)),
    chat=results_of(openai(use_responses_api=False)),
    messages=results_of(
        ChatAnthropic(base_url=URL.removesuffix("/v1"), thinking={"type": "adaptive"}, **WHERE)
    ),
)
