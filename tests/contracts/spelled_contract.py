"""What holds for every remote engine that takes grammars as text: a subclass provides `engine`.

The engine must run a gpt-oss model. What it samples is held against the grammar that the local engine obeys.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from gpt_oss_server.constraints.grammar import Callee, JsonBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.matcher import MatcherState, grammars_of
from gpt_oss_server.constraints.spelled_turn import spelled_turn
from gpt_oss_server.harmony.encoding import CALL, STOP_IDS, UNKNOWN_TEXT, Encoding
from inference.engine import Engine, EngineFailed, Finish, Sampling
from tests.contracts.engine_contract import generated
from tests.doubles.harmony.schemas import NUMBER, TEXT, array, closed, integer, opened, text

PROPERTIES = {
    "city": text(maxLength=20),
    "days": integer(minimum=1, maximum=7),
    "unit": {"enum": ["celsius", "fahrenheit"]},
    "hours": array(NUMBER, maxItems=3),
}
WEATHER = {**closed(**PROPERTIES), "required": ["city", "unit"]}
FREE = {**opened(note=TEXT), "required": ["note"]}
CALLEES = (Callee("functions.weather", JsonBody(WEATHER)), Callee("python", None, ("analysis",), ("code",)))
NAMES = ("functions.f", "functions.fa", "functions.fab", "functions.weather", "g")
SHAPES = {
    "answers": TurnShape(),
    "tools": TurnShape(CALLEES),
    "forced": TurnShape(CALLEES[:1], may_answer=False),
    "schema": TurnShape(answer=JsonBody(WEATHER), asides=("analysis",)),
    "loose": TurnShape(answer=JsonBody(FREE), asides=()),
    "names": TurnShape([Callee(name, JsonBody(FREE)) for name in NAMES], may_answer=False),
    "parallel": TurnShape(CALLEES[:1], may_answer=False, asides=(), parallel=True),
}


def prompt_of(encoding: Encoding, question: str) -> list[int]:
    return encoding.encode_special(f"<|start|>user<|message|>{question}<|end|><|start|>assistant")


def follows(
    encoding: Encoding, shape: TurnShape, tokens: Sequence[int], *, whole: bool, any_bytes: bool = False
) -> None:
    """With `any_bytes`, what follows broken UTF-8 in a free text is not compared."""
    state = grammars_of(encoding).compile(turn_grammar(shape)).start()
    assert isinstance(state, MatcherState)
    for place, token in enumerate(tokens):
        if token in STOP_IDS and not _allows(state, token) and _may_end(state):
            return  # what follows an end belongs to no turn
        try:
            state.accept(token)
        except EngineFailed as error:
            written = encoding.decode(tokens[: place + 1])
            if any_bytes and UNKNOWN_TEXT in written:
                return
            pytest.fail(f"{written!r} is no beginning of a legal turn: {error}")
    assert not whole or _may_end(state), f"{encoding.decode(tokens)!r} is no whole turn"


def _may_end(state: MatcherState) -> bool:
    """For some engines, one end token is as good as another."""
    return state.is_accepting() or any(_allows(state, end) for end in STOP_IDS)


def _allows(state: MatcherState, token: int) -> bool:
    return not state.is_accepting() and bool(state.mask()[token // 8] >> token % 8 & 1)


@pytest.mark.anyio
class SpelledContract:
    """Temperatures at which a model alone would write anything."""

    any_bytes: ClassVar[bool] = False  # whether the model writes broken UTF-8, which some notations allow

    @pytest.mark.parametrize("name", SHAPES)
    @pytest.mark.parametrize("temperature", [0.0, 2.0])
    @pytest.mark.parametrize("is_usual", [False, True])
    async def test_turns_follow_their_grammar(
        self, engine: Engine, encoding: Encoding, name: str, temperature: float, is_usual: bool
    ) -> None:
        shape = SHAPES[name]
        stops = STOP_IDS - {CALL} if shape.parallel else STOP_IDS
        options: dict[str, Any] = {"temperature": temperature, "seed": 3, "max_tokens": 60}
        grammar = spelled_turn(shape, encoding, is_usual=is_usual)
        sampling = Sampling(**options, stop_token_ids=stops, grammar=grammar)
        found = await generated(engine, sampling, prompt_of(encoding, "What is the weather in Rome?"))
        follows(encoding, shape, found.tokens, whole=found.finish is Finish.STOP, any_bytes=self.any_bytes)

    @pytest.mark.parametrize("name", ["tools", "loose"])
    async def test_a_generation_continues_in_its_grammar(
        self, engine: Engine, encoding: Encoding, name: str
    ) -> None:
        shape = SHAPES[name]
        begins = {
            "tools": "<|channel|>analysis<|message|>I <| call 🧿<|end|><|start|>assistant"
            ' to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Ro',
            "loose": '<|channel|>final<|message|>{"note": "<|a", "more": [1, "x🧿 ',
        }
        so_far = encoding.encode_special(begins[name])
        prompt = prompt_of(encoding, "What is the weather in Rome?")
        grammar = spelled_turn(shape, encoding)
        sampling = Sampling(temperature=1.0, top_p=0.9, seed=5, max_tokens=12, grammar=grammar)
        for end in range(0, len(so_far), 4):
            begun = tuple(so_far[:end])
            if encoding.decode(begun).endswith(UNKNOWN_TEXT):
                continue  # not every notation can name the rest of a character
            found = await generated(engine, replace(sampling, continued=begun), [*prompt, *begun])
            ended = found.finish is Finish.STOP
            follows(encoding, shape, [*begun, *found.tokens], whole=ended, any_bytes=self.any_bytes)
