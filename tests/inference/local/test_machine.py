"""The memory for keys and values: a share of what is free, within the container's limit.
What a step of many generations must not cost: logits of all at once, and new memory in every step.
"""

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
from inference.local import machine
from inference.local.scheduling.step import Outcome, StepPart
from inference.local.torch_runner import ROWS_AT_ONCE, TorchRunner
from inference.models.gpt_oss import GptOss, load_model

GIB = 1 << 30
# By version of control groups: their folder, and the files of a group with a limit.
VERSIONS = {
    "0::": ("", "memory.max", "memory.current", "inactive_file"),
    "4:memory:": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's files of a machine with 64 GiB free."""
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    write(tmp_path / "proc/meminfo", f"MemTotal: {96 * GIB >> 10} kB\nMemAvailable: {64 * GIB >> 10} kB\n")
    return tmp_path


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="ascii")


def limited(files: Path, version: str, group: str, most: object, used: int, evictable: int = 0) -> None:
    where, limit, usage, inactive = VERSIONS[version]
    folder = files / "groups" / where / group
    write(folder / limit, f"{most}\n")
    write(folder / usage, f"{used}\n")
    write(folder / "memory.stat", f"anon 5\n{inactive} {evictable}\nempty\n")


def test_without_limits_it_is_a_share_of_the_free_memory(files: Path) -> None:
    assert machine.machine_memory() == 16 * GIB
    write(files / "proc/self/cgroup", "0::/user.slice\n")
    limited(files, "0::", "user.slice", "max", GIB)
    assert machine.machine_memory() == 16 * GIB


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", ["", "pod/box"])
def test_a_container_can_take_the_rest_of_its_limit(files: Path, version: str, group: str) -> None:
    write(files / "proc/self/cgroup", f"9:cpu:/x\n{version}/{group}\n")
    limited(files, version, group, 8 * GIB, used=5 * GIB, evictable=GIB)
    assert machine.machine_memory() == GIB


def test_the_tightest_parent_group_counts(files: Path) -> None:
    write(files / "proc/self/cgroup", "0::/pod/box\n")
    limited(files, "0::", "pod/box", 8 * GIB, used=0)
    limited(files, "0::", "pod", 6 * GIB, used=2 * GIB)
    assert machine.machine_memory() == GIB


@pytest.mark.parametrize("path", ["/docker/1234", "/../../outside"])
def test_a_path_of_the_host_resolves_to_the_mounted_root(files: Path, path: str) -> None:
    write(files / "proc/self/cgroup", f"4:memory:{path}\n")
    limited(files, "4:memory:", "", 4 * GIB, used=0)
    assert machine.machine_memory() == GIB


def test_a_full_container_leaves_nothing(files: Path) -> None:
    write(files / "proc/self/cgroup", "0::/\n")
    limited(files, "0::", "", GIB, used=2 * GIB)
    assert machine.machine_memory() == 0


def test_other_systems_use_half_of_the_physical_memory(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "proc/meminfo").unlink()
    monkeypatch.setattr(machine, "_physical_memory", lambda: 8 * GIB)
    assert machine.machine_memory() == GIB


def test_the_share_of_all_memory_does_not_vary_with_what_is_free(files: Path) -> None:
    assert machine.machine_share() == 24 * GIB
    write(files / "proc/meminfo", f"MemTotal: {96 * GIB >> 10} kB\nMemAvailable: 5 kB\n")
    assert machine.machine_share() == 24 * GIB
    write(files / "proc/self/cgroup", "0::/pod/box\n")
    limited(files, "0::", "pod/box", 8 * GIB, used=7 * GIB)
    assert machine.machine_share() == 2 * GIB


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


def test_a_step_on_two_cores_gives_each_generation_its_own_tokens(checkpoint: Path) -> None:
    """And the numbers of a random seed, step after step."""

    def sampled(cores: int) -> list[list[int]]:
        torch.set_num_threads(cores)
        runner = runner_of(checkpoint, 13)
        pickers = [runner.picker(Sampling(seed=slot)) for slot in range(13)]
        drawn = [[slot] for slot in range(13)]
        for at in range(8):
            parts = [part(runner, slot, drawn[slot][-1:], at, picker=pickers[slot]) for slot in range(13)]
            for slot, outcome in enumerate(runner.launch(parts).outcomes()):
                drawn[slot] += tokens(outcome)
        runner.close()
        return drawn

    before = torch.get_num_threads()
    try:
        assert sampled(2) == sampled(1)
    finally:
        torch.set_num_threads(before)


def test_one_core_runs_the_layers_of_a_few_rows_and_all_the_rest(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    for name in ("forward", "logits"):
        original = getattr(GptOss, name)

        def noted(*args: Any, original: Any = original) -> Any:
            seen.append(torch.get_num_threads())
            return original(*args)

        monkeypatch.setattr(GptOss, name, noted)
    runner = runner_of(checkpoint, 2)
    few = runner._rows_of_one_core
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        runner.launch([part(runner, 0, [1], 0)])
        runner._rows_of_one_core = 3
        runner.launch([part(runner, 1, [1, 2, 3, 4], 0)])
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2, 2, 2]
    assert few > 100, "a row of a small model is little work"
    runner.close()


def tokens(outcome: Outcome) -> list[int]:
    return [found.token for found in outcome.sampled]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's memory")
def test_steps_of_many_generations_take_no_new_memory(whole_vocabulary: Path) -> None:
    """In a fresh process: what ran before decides how glibc shares memory among threads."""
    code = (
        "import sys; from pathlib import Path; from tests.inference.local import test_machine; "
        "print(test_machine.new_pages_of_a_step(Path(sys.argv[1])))"
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
