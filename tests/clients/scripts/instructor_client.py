"""instructor: typed answers in each of its modes, a repaired answer, partial objects of a stream."""

import os

import instructor
from openai import OpenAI
from pydantic import field_validator
from shared import Place as AnyPlace
from shared import report


class Place(AnyPlace):
    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("no such city")
        return city


QUESTION = [{"role": "user", "content": "A city?"}]
results: dict[str, object] = {}
for mode in ("JSON_SCHEMA", "JSON", "TOOLS", "TOOLS_STRICT", "RESPONSES_TOOLS"):
    client = instructor.from_openai(
        OpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0), mode=instructor.Mode[mode]
    )
    place = client.create(model="scripted", messages=QUESTION, response_model=Place, max_retries=2)
    results[mode] = place.city
client = instructor.from_openai(OpenAI(base_url=os.environ["BASE_URL"], api_key="any"))
stream = client.create_partial(model="scripted", messages=QUESTION, response_model=Place)
results["partial"] = [place.city for place in stream][-1]
report(**results)
