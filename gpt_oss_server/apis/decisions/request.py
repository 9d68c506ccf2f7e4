"""The body of POST /v1/decisions: an input, and 1 to 400 questions about it.

Takes decoded JSON. Returns a frozen `CreateDecision`, or raises a 400 that names the field and the remedy.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool, StrictStr

from gpt_oss_server.content.parts import text_of
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, optional, read_body, required
from gpt_oss_server.http.unserved import SAMPLERS_NOT_SERVED, NotServed

_EXAMPLE = (
    '{"input": "I was charged twice.", '
    '"questions": [{"type": "predicate", "instructions": "The customer wants money back."}]}'
)
_MOST_QUESTIONS, _MOST_CHOICES, _MOST_LEVELS = 400, 255, 10  # OpenAI's


class Choice(Body):
    value: StrictStr | StrictBool = required("A text, or a boolean.")
    description: str | None = optional("What the value means.")

    @property
    def label(self) -> str:
        return str(self.value).lower() if isinstance(self.value, bool) else self.value


class Level(Body):
    label: str = required("The level's name.")
    description: str | None = optional("What the level means.")


class Question(Body):
    type: Literal["predicate", "choice", "score"] = required("The kind of answer.")
    instructions: str | list[Any] = required("The statement, or the question: a text, or its parts.")
    name: str | None = optional("Comes back with the answer.")
    choices: Annotated[list[Choice], Field(min_length=2, max_length=_MOST_CHOICES)] | None = optional(
        "For a choice: the values, each of them once."
    )
    levels: Annotated[list[Level], Field(min_length=2, max_length=_MOST_LEVELS)] | None = optional(
        "For a score: the levels from the lowest to the highest, which count from 0."
    )

    @property
    def options(self) -> Sequence[Choice | Level]:
        """What is to be chosen from; a predicate has none."""
        return self.choices or self.levels or ()

    def text(self, where: str) -> str:
        """As the model reads it."""
        asked = text_of(self.instructions, f"{where}.instructions")
        if self.type == "predicate":
            return f"Is this true of the above?\n\n{asked}\n\nAnswer with yes or no."
        lines = [
            f"{number}: {option.label}" + (f" ({option.description})" if option.description else "")
            for number, option in enumerate(self.options)
        ]
        return "\n".join((asked, "", *lines, "", "Answer with the number alone."))

    @property
    def answers(self) -> list[str]:
        """Each is a single token, whatever the options are called."""
        return ["yes", "no"] if self.type == "predicate" else [str(at) for at in range(len(self.options))]


class CreateDecision(Body):
    not_served: ClassVar[NotServed] = SAMPLERS_NOT_SERVED
    # No request chooses how to sample.
    scores: ClassVar[None] = None
    logit_bias: ClassVar[None] = None
    min_tokens: ClassVar[None] = None
    ignore_eos: ClassVar[None] = None
    stop_token_ids: ClassVar[None] = None

    model: str | None = optional("The model to use. Left out: the one that this server serves.")
    input: str | list[Any] = required("What the questions are about: a text, or messages, calls and outputs.")
    questions: Annotated[list[Question], Field(min_length=1, max_length=_MOST_QUESTIONS)] = required(
        "1 to 400 questions, which are answered in this order."
    )
    prompt_cache_key: str | None = optional("Passed to engines and routers that keep caches by it.")
    safety_identifier: str | None = optional("Changes nothing.")


def parse_request(body: object) -> CreateDecision:
    request = read_body(body, CreateDecision, _EXAMPLE)
    for index, question in enumerate(request.questions):
        _check(question, f"questions[{index}]")
    return request


def _check(question: Question, where: str) -> None:
    wanted = {"choice": "choices", "score": "levels"}.get(question.type)
    for name in ("choices", "levels"):
        if (getattr(question, name) is None) == (name == wanted):
            must = "needs" if name == wanted else "has no"
            raise InvalidRequest(f"`{where}`: a {question.type} {must} `{name}`.", param=f"{where}.{name}")
    keys = [option.value if isinstance(option, Choice) else option.label for option in question.options]
    named = {(type(key), key) for key in keys}  # a text and a boolean differ
    if len(named) < len(keys):
        raise InvalidRequest.at(f"{where}.{wanted}", ": each must be there once.")
