"""Scores the embedded model on prompts it has never seen: `python -m recipe.evaluation.evaluate`.

Names, values and phrasings come from the held-out part of the generators, with a fixed seed. Every generation
of a conversation is a case: the prompt is the one that the server would send, and the rest of the
conversation is expected. Sampling is greedy, and repeated at the checkpoint's default temperature to check
that the output is well-formed. It is free, unless `--served` applies the server's grammar, as for a request
with strict functions.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import inference
from inference.engine import Engine, Sampling
from recipe.evaluation.outcome import Outcome, copied_values, outcome, same_call
from recipe.evaluation.served import grammar_of
from recipe.evaluation.usual import usual_talks
from recipe.skills.data import SKILLS, STRETCH
from recipe.text.talk import PAST, Talk, Turn
from recipe.text.vocabulary import encoding
from recipe.text.words import Words

_LINES = {
    "answer": "answer from the tool's result",
    "chat": "everyday question answered",
    "decline": "declined, as no tool fits",
    "unknown": "admitted that it does not know",
    "memory": "recalled an earlier statement",
    "told": "acknowledged a statement",
    "json": "JSON for a flat schema",
    "tools": "questions about the declared tools",
    "no python": "requested the python tool",
    "shell": "one command for the shell, in an agent's prompt",
    "report": "reported the command's result",
}


@dataclass(frozen=True, slots=True)
class Case:
    talk: Talk  # a flow is complete if all cases of a talk are right
    turn: Turn

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple(self.talk.tokens[: self.turn.start])

    @property
    def expected(self) -> tuple[int, ...]:
        return tuple(self.talk.tokens[self.turn.start : self.turn.end])

    @property
    def several_tools(self) -> bool:
        text = encoding().decode(list(self.prompt))
        return text.count("\ntype ") > 1 and "namespace functions" in text


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    text: str
    got: Outcome | None  # None: not well-formed
    wanted: Outcome

    @property
    def right(self) -> bool:
        """The same call with the same arguments, or an answer with all required texts."""
        if self.got is None:
            return False
        if self.wanted.recipient is not None:
            return same_call(self.got, self.wanted)
        if self.got.recipient is not None:
            return False
        if self.case.turn.kind == "json":
            return bool(self.got.arguments == self.wanted.arguments)
        return all(text in self.got.answer for text in self.case.turn.must)


def cases_of(seed: int, per_skill: int, skills: Sequence[str]) -> Iterator[Case]:
    for skill in skills:
        for place in range(per_skill):
            rng = Random(f"{seed}/held out/{skill}/{place}")
            talk: Talk = SKILLS[skill](rng, Words(rng, True), True)
            for turn in (turn for turn in talk.turns if turn.kind != PAST):
                yield Case(talk, turn)


def usual_cases() -> Iterator[Case]:
    for talk in usual_talks():
        yield from (Case(talk, turn) for turn in talk.turns)


async def _complete(
    engine: Engine, case: Case, sampling: Sampling, gate: asyncio.Semaphore
) -> tuple[int, ...]:
    out: list[int] = []
    async with gate:
        async for step in engine.generate(case.prompt, sampling):
            out += step.tokens
    return tuple(out)


async def results_of(
    engine: Engine, cases: Sequence[Case], temperature: float, top_p: float, streams: int, served: bool
) -> list[Result]:
    gate = asyncio.Semaphore(streams)
    grammars = {id(case.talk): grammar_of(case.talk) for case in cases} if served else {}
    done = 0

    async def one(place: int, case: Case) -> Result:
        nonlocal done
        sampling = Sampling(
            temperature=temperature,
            top_p=top_p,
            seed=place,
            max_tokens=500,
            grammar=grammars.get(id(case.talk)),
        )
        tokens = await _complete(engine, case, sampling, gate)
        done += 1
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done}/{len(cases)}")
        prompt = encoding().decode(list(case.prompt))
        wanted = outcome(case.expected, prompt)
        assert wanted is not None
        return Result(case, encoding().decode(list(tokens)), outcome(tokens, prompt), wanted)

    return await asyncio.gather(*(one(place, case) for place, case in enumerate(cases)))


def scores_of(results: Sequence[Result]) -> dict[str, tuple[int, int]]:
    """For each line, the numbers of right cases and of all."""
    scores: dict[str, list[bool]] = defaultdict(list)
    flows: dict[int, list[bool]] = defaultdict(list)
    for result in results:
        case, kind = result.case, result.case.turn.kind
        scores["well-formed Harmony"].append(result.got is not None)
        if kind in ("call", "preamble"):
            scores["right function and exact arguments"].append(result.right)
            if case.several_tools:
                chosen = result.got is not None and result.got.recipient == result.wanted.recipient
                scores["right tool chosen among several"].append(chosen)
            for quoted, copied in copied_values(
                encoding().decode(list(case.prompt)), result.wanted, result.got
            ):
                scores[f"never-seen strings copied, {'in quotes' if quoted else 'bare words'}"].append(copied)
        if kind == "preamble":
            scores["a preamble before the call, on request"].append(
                result.got is not None and bool(result.got.preamble)
            )
        if case.talk.skill == "browser":
            flows[id(case.talk)].append(result.right)
        elif case.talk.skill == "python" and kind != "no python":
            scores["arithmetic through python"].append(result.right)
        elif kind not in ("call", "preamble"):
            scores[_LINES[kind]].append(result.right)
    scores["browser flow with a valid citation"] = [all(flow) for flow in flows.values()]
    return {name: (sum(held), len(held)) for name, held in scores.items() if held}


def table_of(scores: dict[str, tuple[int, int]]) -> str:
    width = max(map(len, scores))
    lines = [
        f"{name.ljust(width)}  {right / count:7.1%}  {right}/{count}"
        for name, (right, count) in scores.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="tiny")
    parser.add_argument(
        "--cases", type=int, default=60, help="conversations per skill; calls have three times as many"
    )
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--streams", type=int, default=1)
    usual = [skill for skill in SKILLS if skill not in STRETCH]
    parser.add_argument("--skills", default=",".join(usual), help=f"of {', '.join(SKILLS)}")
    parser.add_argument(
        "--usual", action="store_true", help="only handwritten requests in usual words (usual.json)"
    )
    parser.add_argument("--greedy-only", action="store_true")
    parser.add_argument("--served", action="store_true", help="under the grammar that the server enforces")
    parser.add_argument("--temperature", type=float, help="of the second pass (default: the model's own)")
    parser.add_argument("--wrong", type=int, default=0, help="the number of wrong cases to show")
    arguments = parser.parse_args()
    skills = arguments.skills.split(",")
    cases = list(cases_of(arguments.seed, arguments.cases, skills))
    if arguments.usual:
        cases = list(usual_cases())
    elif "call" in skills:
        cases += cases_of(arguments.seed + 1, 2 * arguments.cases, ["call"])

    async def run() -> None:
        engine = inference.load(arguments.model)
        began = time.monotonic()
        greedy = await results_of(engine, cases, 0.0, 1.0, arguments.streams, arguments.served)
        scores = scores_of(greedy)
        if not arguments.greedy_only:
            given, top_p = arguments.temperature, engine.info.top_p
            temperature = engine.info.temperature if given is None else given
            warm = await results_of(engine, cases, temperature, top_p, arguments.streams, arguments.served)
            right = sum(result.got is not None for result in warm)
            scores[f"well-formed at temperature {temperature}, top_p {top_p}"] = (right, len(warm))
        await engine.close()
        sys.stdout.write(f"{table_of(scores)}\n{len(cases)} cases, {time.monotonic() - began:.0f} s\n")
        for result in [result for result in greedy if not result.right][: arguments.wrong]:
            wanted = encoding().decode(list(result.case.expected))
            prompt = encoding().decode(list(result.case.prompt)).rpartition("<|start|>user")[2]
            sys.stdout.write(
                f"--- {result.case.talk.skill} {prompt}\n  got    {result.text}\n  wanted {wanted}\n"
            )

    asyncio.run(run())


if __name__ == "__main__":
    main()
