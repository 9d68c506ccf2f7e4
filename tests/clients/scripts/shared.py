"""What the scripts have in common: a typed answer, a function, and how results are printed."""

import json

from pydantic import BaseModel


class Place(BaseModel):
    """A place."""

    city: str


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city's name.
    """
    return f"sunny in {city}"


def report(**results: object) -> None:
    print(json.dumps(results))
