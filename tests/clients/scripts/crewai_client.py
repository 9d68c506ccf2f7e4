"""CrewAI over both APIs: a crew with a tool, a typed answer."""

import os

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from shared import Place, get_weather, report


def results_of(api: str) -> dict[str, object]:
    model = LLM(
        model="openai/scripted", base_url=os.environ["BASE_URL"], api_key="any", api=api, max_retries=0
    )
    options = {"goal": "Be brief.", "backstory": "A local.", "llm": model}
    guide = Agent(role="Guide", tools=[tool("get_weather")(get_weather)], **options)
    task = Task(description="Weather in Paris?", expected_output="One sentence.", agent=guide)
    whole = Crew(agents=[guide], tasks=[task]).kickoff()
    typist = Agent(role="Typist", **options)
    task = Task(description="A city?", expected_output="A city.", agent=typist, output_pydantic=Place)
    typed = Crew(agents=[typist], tasks=[task]).kickoff()
    return {"whole": whole.raw, "typed": typed.pydantic.city}


report(completions=results_of("completions"), responses=results_of("responses"))
