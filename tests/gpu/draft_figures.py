"""A draft head on a card: tokens per second with guesses of a known quality, and what guesses cost.

`python tests/gpu/draft_figures.py [--seconds N] [--json FILE]`. The weights are random, but the next token is
a function of the newest one (tests/doubles/inference/walking.py), so that texts can be checked and the head
is right with the share that is chosen. Each part prints its own figures, or its error; a part that would
begin after N seconds is skipped.
"""

import asyncio
import itertools
import random
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from inference.bench.machine import seconds as median_seconds
from inference.config import SHAPES
from inference.drafting import loading
from inference.engine import EngineInfo, Sampling
from inference.local import engine as engines
from inference.local.cuda.guesser import DraftShape
from inference.local.cuda.inputs import decode_shape
from inference.local.cuda.runner import CudaRunner
from inference.local.engine import LocalEngine
from inference.options import EngineOptions
from tests.doubles.inference.timed_parts import TimedParts, parser_of, say
from tests.doubles.inference.walking import KnowingHead, walking_model

BATCHES, SHARES = (1, 4, 16), (0.0, 0.6, 0.8)
PROMPT = 256
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80)


class Figures(TimedParts):
    def __init__(self, shape: str, device: torch.device, seconds: float, tokens: int) -> None:
        super().__init__(seconds)
        self._shape, self._device, self._tokens = shape, device, tokens

    # The parts ----------------------------------------------------------------------------------------

    def make_model(self) -> str:
        self._model, self._walk = walking_model(SHAPES[self._shape], self._device)
        self._head = KnowingHead(self._model, self._walk)
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "CPU"
        say(f"weights of the {self._shape} and of a head made on {name}")
        return name

    def without(self) -> dict[str, Any]:
        return asyncio.run(self._run("no head", None, (None,)))

    def with_head(self) -> dict[str, Any]:
        return asyncio.run(self._run("head", "known", SHARES))

    async def _run(
        self, name: str, head: str | None, shares: tuple[float | None, ...]
    ) -> dict[str, dict[str, float]]:
        start = time.monotonic()
        engine = self._engine(head)
        say(f"{name}: engine ready after {time.monotonic() - start:.1f} s: {engine.info.plan}")
        found = {}
        try:
            await self._texts(engine, 1, 0)  # compiles what recording has not
            for share in shares:
                if share is not None:
                    self._head.know(share)
                for batch in BATCHES:
                    what = f"{name}{'' if share is None else f', right {share:.0%}'}, {batch}"
                    found[what] = await self._measured(engine, batch)
                    say(f"{what}: " + ", ".join(f"{key} {value:,}" for key, value in found[what].items()))
            runner = engine._runner
            if head is not None and isinstance(runner, CudaRunner) and self._device.type == "cuda":
                found["costs"] = self._costs(runner)
        finally:
            await engine.close()
        return found

    def _engine(self, head: str | None) -> LocalEngine:
        config = self._model.config
        info = EngineInfo(
            name=self._shape, context_length=min(8192, config.context_length), vocab_size=config.vocab_size
        )
        options = EngineOptions(
            speculation=head is not None and f"eagle:{head}", max_concurrent=max(BATCHES), kv_memory=6 << 30
        )
        loaded = loading.load_draft_head
        loading.load_draft_head = lambda name, model: self._head
        try:
            return engines.start_engine(self._model, info, options, progress=False)
        finally:
            loading.load_draft_head = loaded

    async def _measured(self, engine: LocalEngine, batch: int) -> dict[str, float]:
        before = engine.measures()
        start = time.perf_counter()
        times, wrong = await self._texts(engine, batch, self._tokens)
        seconds = time.perf_counter() - max(times)  # since all prompts were read
        counts = {name: value - before[name] for name, value in engine.measures().items()}
        # Until the last prompt was read, the others already had tokens: a few of hundreds.
        return {
            "tokens/s": round(batch * self._tokens / seconds, 1),
            "tokens a step": round(batch * self._tokens / max(1, counts["steps"]), 2),
            "ms a step": round(1e3 * seconds / max(1, counts["steps"]), 3),
            "drafted": counts["drafted_tokens"],
            "accepted": counts["accepted_tokens"],
            "wrong tokens": wrong,
            "first token s": round(max(times) - start, 3),
        }

    async def _texts(self, engine: LocalEngine, batch: int, count: int) -> tuple[list[float], int]:
        """When each stream's first token came, and how many tokens were not the walk's."""
        draw = random.Random(batch)
        vocabulary = self._model.config.vocab_size
        prompts = [[draw.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(batch)]
        sampling = Sampling(temperature=0.0, max_tokens=count + 1, stop_token_ids=frozenset())

        async def one(prompt: list[int]) -> tuple[float, int]:
            first, tokens = 0.0, list[int]()
            async with aclosing(engine.generate(prompt, sampling)) as steps:
                async for step in steps:
                    first = first or time.perf_counter()
                    tokens += step.tokens
            wanted = self._walk.text(prompt, count + 1)
            return first, sum(own != right for own, right in zip(tokens, wanted, strict=True))

        found = await asyncio.gather(*(one(prompt) for prompt in prompts))
        return [first for first, _ in found], sum(wrong for _, wrong in found)

    @torch.inference_mode()
    def _costs(self, runner: CudaRunner) -> dict[str, float]:
        """Milliseconds of recorded work: steps by rows (without any key), and rounds of guesses."""
        shapes = {rows: decode_shape(rows) for rows in ROWS if decode_shape(rows) in runner._graphs.shapes}
        found = {f"step of {n} rows": self._replayed(runner._graphs, shape) for n, shape in shapes.items()}
        for batch, rounds in itertools.product(BATCHES, (1, 2, 4)):
            shape = DraftShape(batch, rounds)
            found[f"{rounds} guesses of {batch}"] = self._replayed(runner._guesser.graphs, shape)
        say("ms: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
        return found

    def _replayed(self, graphs: Any, shape: Any) -> float:
        numbers = torch.zeros(graphs._length(shape), dtype=torch.int64)
        return round(median_seconds(self._device, lambda: graphs.replay(numbers, shape), inner=8) * 1e3, 4)


def main() -> int:
    parser = parser_of(__doc__, seconds=120.0)
    parser.add_argument("--shape", choices=SHAPES, default="20b", help="of the model (20b)")
    parser.add_argument("--tokens", type=int, default=400, help="that each stream samples (400)")
    parser.add_argument("--device", default="cuda", help="cpu only checks the program (cuda)")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write("No CUDA device is visible to torch: nothing was measured.\n")
        return 1
    figures = Figures(given.shape, torch.device(given.device), given.seconds, given.tokens)
    runs = {"device": figures.make_model, "with a head": figures.with_head, "without": figures.without}
    return int(figures.parts(runs, given.json))


if __name__ == "__main__":
    sys.exit(main())
