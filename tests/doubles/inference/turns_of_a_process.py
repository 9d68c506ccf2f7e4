"""An engine in a process of its own, which a test kills: `python FILE CACHE_FOLDER` (or -).

Reads prompts from standard input, one JSON list in a line; writes for each how long the first token took, how
many tokens were cached, the scores of the sampled tokens and the likeliest others, and whether all is stored.
"""

import asyncio
import json
import sys
import time
from contextlib import aclosing

import inference
from inference.engine import Sampling
from inference.local.engine import LocalEngine
from inference.options import EngineOptions
from tests.doubles.inference.tiered import all_stored

SAMPLING = Sampling(temperature=0.0, stop_token_ids=frozenset(), max_tokens=8, logprobs=20)


async def answer(engine: LocalEngine, prompt: list[int]) -> dict[str, object]:
    begun, first, cached, scores = time.perf_counter(), 0.0, 0, []
    async with aclosing(engine.generate(prompt, SAMPLING)) as steps:
        async for step in steps:
            first = first or time.perf_counter() - begun
            cached += step.cached_tokens
            scores += [[score.token, score.logprob, *score.top] for score in step.logprobs or ()]
    await all_stored(engine)
    return {"first": first, "cached": cached, "scores": scores, "measures": engine.measures()}


async def main(folder: str) -> None:
    options = EngineOptions(device="cpu", max_concurrent=2, cache_dir=None if folder == "-" else folder)
    engine = inference.load("tiny", options=options, progress=False)
    assert isinstance(engine, LocalEngine)
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await answer(engine, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
