"""What a step of many generations must not cost: logits of all at once, and new memory in every step."""

import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.engine import Sampling
from inference.local.scheduling.step import Outcome, StepPart
from inference.local.torch_runner import ROWS_AT_ONCE, TorchRunner
from inference.models.gpt_oss import GptOss, load_model

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[3]
BLOCKS = 4  # of each generation: 64 positions


def runner_of(folder: Path, generations: int) -> TorchRunner:
    model = load_model(folder, device=CPU, context=64)
    return TorchRunner(model, [generations * BLOCKS + 1] * len(model.config.windows))


def part(runner: TorchRunner, slot: int, tokens: list[int], start: int, **more: Any) -> StepPart:
    table = list(range(1 + slot * BLOCKS, 1 + (slot + 1) * BLOCKS))
    sampling = Sampling(temperature=0.0, prompt_logprobs=0 if "scored" in more else None)
    more = {"samples": 1, "picker": runner.picker(sampling), **more}
    return StepPart(slot, tokens, start, [table, table], **more)


def test_the_head_takes_few_rows_at_a_time_and_gives_each_generation_its_own(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among them prompts that need no row, and one that needs more rows than are taken at a time."""
    seen: list[int] = []
    logits = GptOss.logits

    def noted(self: GptOss, x: Tensor, norm: Tensor | None = None) -> Tensor:
        seen.append(len(x))
        return logits(self, x, norm)

    monkeypatch.setattr(GptOss, "logits", noted)
    runner = runner_of(checkpoint, 45)
    drawn = [[(7 * slot + 3 * at) % 500 for at in range(30)] for slot in range(45)]

    def parts() -> list[StepPart]:
        decoding = [part(runner, slot, [drawn[slot][0]], 0) for slot in range(40)]
        inner = [part(runner, slot, drawn[slot], 0, samples=0) for slot in (40, 41)]
        scored = part(runner, 42, drawn[42], 0, scored=[*drawn[42][1:], 5])
        return [*decoding, *inner, scored, *(part(runner, slot, drawn[slot], 0) for slot in (43, 44))]

    together = runner.launch(parts()).outcomes()
    assert seen == [ROWS_AT_ONCE, ROWS_AT_ONCE, 40 - 2 * ROWS_AT_ONCE, 30, 2]
    alone = [runner.launch([each]).outcomes()[0] for each in parts()]
    assert [tokens(found) for found in together] == [tokens(found) for found in alone]
    assert [len(found.scores) for found in together] == [0] * 42 + [30, 0, 0]
    assert not any(found.error for found in together)
    runner.close()


def tokens(outcome: Outcome) -> list[int]:
    return [found.token for found in outcome.sampled]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's memory")
def test_steps_of_many_generations_take_no_new_memory(whole_vocabulary: Path) -> None:
    """In a fresh process: what ran before decides how glibc shares memory among threads."""
    code = (
        "import sys; from pathlib import Path; from tests.inference.local import test_step_costs; "
        "print(test_step_costs.new_pages_of_a_step(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(whole_vocabulary)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    of_logits = 32 * 201_088 * 4 / 4096  # pages
    assert float(done.stdout) < of_logits / 20


def new_pages_of_a_step(folder: Path) -> float:
    """In a thread of its own, like the engine's, where glibc returned the memory of the logits every time."""
    import resource

    runner = runner_of(folder, 32)
    faults: list[int] = []

    def run() -> None:
        for at in range(12):
            if at in (6, 11):
                faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt)
            runner.launch([part(runner, slot, [slot], at) for slot in range(32)])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    runner.close()
    return (faults[1] - faults[0]) / 5
