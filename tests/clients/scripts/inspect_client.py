"""Inspect over both APIs: an evaluation whose solver calls a tool, with its score."""

import os

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool
from shared import report


@tool
def get_weather() -> Tool:
    async def execute(city: str) -> str:
        """The weather in a city.

        Args:
            city: The city's name.
        """
        return f"sunny in {city}"

    return execute


def results_of(name: str, **options: object) -> dict[str, object]:
    model = get_model(name, base_url=os.environ["BASE_URL"], api_key="any", **options)
    task = Task(
        dataset=[Sample(input="Weather in Paris?", target="sunny")],
        solver=[use_tools(get_weather()), generate()],
        scorer=includes(),
    )
    [log] = eval(task, model=model, display="none", log_dir="logs")
    [sample] = log.samples
    return {
        "status": log.status,
        "answer": sample.output.completion,
        "accuracy": log.results.scores[0].metrics["accuracy"].value,
        "roles": [message.role for message in sample.messages],
    }


report(
    chat=results_of("openai-api/local/scripted"),
    responses=results_of("openai-api/local/scripted", responses_api=True),
)
