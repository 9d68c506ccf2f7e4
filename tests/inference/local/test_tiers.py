"""What lower tiers give back is what was computed, or nothing: over kills, damage, and too little room.
The engine with a folder: restarts, costs, other weights, and what is refused.
"""

import logging
import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import inference
from inference.config import ModelConfig
from inference.engine import CheckpointError, EngineFailed, Sampling, TokenLogprob
from inference.local.cuda.runner import CudaRunner
from inference.local.engine import LocalEngine, load_local
from inference.local.tiers import packs as packs_module
from inference.local.tiers.opening import measured
from inference.local.tiers.packs import delete_blocks_of
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import load_model
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, generated
from tests.doubles.inference.driven import Prompts, check, predicted
from tests.doubles.inference.random_checkpoint import write_random_checkpoint
from tests.doubles.inference.tiered import COMPUTING_PAYS, PLACE, RESTORING_PAYS, SIZE, Tiered, all_stored
from tests.doubles.random_tests.seeds import seeds

SAMPLING = Sampling(temperature=0.0)
CONTEXT = 160


def answered(engine: Tiered, prompt: list[int], salt: str | None = None, limit: int = 3) -> int:
    """Checks the answer; returns how many tokens were cached."""
    client = engine.request(prompt, limit, replace(SAMPLING, cache_salt=salt))
    engine.finish()
    check(client)
    engine.clients.remove(client)
    return client.cached


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*/*.kv"))


# --- damage at random ----------------------------------------------------------------------------------


def _flip(draw: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 20])):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _cut(draw: random.Random, path: Path) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def _grow(draw: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + draw.randbytes(9))


def _swap(draw: random.Random, path: Path) -> None:
    other = draw.choice(files(path.parents[2]))
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _remove(draw: random.Random, path: Path) -> None:
    path.unlink()


def _add_foreign(draw: random.Random, path: Path) -> None:
    path.with_name(f"{draw.randrange(10**9)}.kv").write_bytes(draw.randbytes(draw.choice([0, 9, 400])))


DAMAGES: list[Callable[[random.Random, Path], None]] = [_flip, _cut, _grow, _swap, _remove, _add_foreign]


@pytest.mark.parametrize("seed", seeds(4, proofs=20))
async def test_prompts_over_a_cache_that_is_too_small_and_damaged_get_the_same_answers(
    seed: int, tmp_path: Path
) -> None:
    """50 prompts for each seed, on two engines that share a folder and are killed and started again."""
    draw = random.Random(seed)
    windows = draw.choice([(10, None), (None, 10), (None,), (7,), (2, None)])
    sizes = {"disk": draw.choice([40_000, 150_000]), "memory": draw.choice([0, 5_000])}
    sizes["running"] = draw.choice([1, 3, 6])

    def started() -> Tiered:
        blocks = [4 + CONTEXT // SIZE + draw.choice([0, 20])] * len(windows)
        return Tiered(tmp_path, windows=windows, blocks=blocks, **sizes)

    engines, prompts = [started(), started()], Prompts(draw, CONTEXT // 2)
    restored = 0
    for _ in range(50):
        engine = draw.choice(engines)
        salt = draw.choice([None, None, "a", "a b"])
        engine.request(prompts.next(), draw.choice([1, 5, 30]), replace(SAMPLING, cache_salt=salt))
        for _ in range(draw.choice([0, 3, 30])):
            engine.tiers.work() if draw.random() < 0.6 else engine.turn()
        if (stored := files(tmp_path)) and draw.random() < 0.1:
            draw.choice(DAMAGES)(draw, draw.choice(stored))
        if draw.random() < 0.3:
            engine.tiers._packs.refresh()
        if draw.random() < 0.3:  # its sequences end, then it is killed with copies that wait
            restored += _ended(engine)
            engines[engines.index(engine)] = started()
    restored += sum(map(_ended, engines))
    assert restored > 0
    packs = engines[0].tiers._packs
    packs.refresh()
    packs.trim()
    assert sum(path.stat().st_size for path in files(tmp_path)) <= sizes["disk"]


def _ended(engine: Tiered) -> int:
    engine.finish()
    for client in engine.clients:
        check(client)
    engine.cache.check_integrity([])
    assert engine.cache.used == 0
    counts = engine.tiers.counts
    return counts.restored_from_disk + counts.restored_from_memory


async def test_copies_that_a_reset_overtakes_write_to_no_block(tmp_path: Path) -> None:
    answered(Tiered(tmp_path), prompt := list(range(40)))
    engine = Tiered(tmp_path)
    engine.request(prompt, 3, SAMPLING)
    engine.turn()
    assert engine.tiers._fetches, "the prompt waits for its blocks"
    engine.loop._reset(EngineFailed("a defect"))
    engine.clients.clear()
    other = engine.request([9] * 30, 3, SAMPLING)
    engine.turn()  # takes the blocks that the copy would fill
    engine.copy_all()
    engine.finish()
    check(other)
    assert answered(engine, prompt) == 36


async def test_a_block_that_is_taken_again_is_not_kept_under_its_old_name(tmp_path: Path) -> None:
    engine = Tiered(tmp_path, blocks=(44, 44), running=1)
    for first in range(4):  # each takes the blocks of the one before, whose copies wait
        engine.request([first] * 120, 1, SAMPLING)
        while engine.turn():
            pass
    engine.finish()
    for first in range(4):
        answered(Tiered(tmp_path), [first] * 120)
    assert answered(Tiered(tmp_path), [3] * 120) > 0


# --- what is restored ------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [2, 8, 9])
async def test_a_restart_finds_as_much_as_an_uninterrupted_engine_at_every_length(
    window: int, tmp_path: Path
) -> None:
    """At the edges of blocks and windows too. A layer with a window stores a part of its blocks."""
    for length in range(2, 30):
        prompt, folder = [length, *range(length - 1)], tmp_path / str(length)
        engine = Tiered(folder, windows=(window, None), blocks=(400, 400))
        answered(engine, prompt, limit=9)
        whole = [*prompt, *predicted(prompt, 9)]
        for begun in (prompt, whole[: length + 4], [*prompt[: length // 2], 3, 1]):
            next_prompt = [*begun, 45, 46, 47]
            restarted = Tiered(folder, windows=(window, None), blocks=(400, 400))
            found = answered(restarted, next_prompt)
            if begun == prompt:
                assert found == length // SIZE * SIZE
                assert found == restarted.tiers.counts.restored_from_disk
        assert answered(Tiered(folder, windows=(window, None)), [*whole, 1]) == (length + 8) // SIZE * SIZE


async def test_windows_are_stored_in_part_and_prompts_that_diverge_are_found_again(tmp_path: Path) -> None:
    head = [at % 41 for at in range(100)]
    engine = Tiered(tmp_path, blocks=(27, 400))  # too few for the windows of the whole prompt
    for tail in range(2):  # the second marks the place where they diverge
        answered(engine, [*head, *[tail] * 40])
    stored = {kind: len([key for key in engine.tiers._packs._stored if key[0] == kind]) for kind in (0, 1)}
    assert 0 < stored[0] < stored[1] / 2
    assert answered(Tiered(tmp_path), [*head, *[5] * 40]) == 100


async def test_a_salt_keeps_prompts_apart_and_an_owners_blocks_can_be_deleted(tmp_path: Path) -> None:
    prompt = list(range(40))
    for salt in (None, "anna ", "anna x", "ben "):
        assert answered(Tiered(tmp_path), prompt, salt) == 0
    running = Tiered(tmp_path)
    assert delete_blocks_of(tmp_path, "anna") == 2
    assert delete_blocks_of(tmp_path, "anna") == 0
    for engine in (running, Tiered(tmp_path)):
        assert [answered(engine, prompt, salt) for salt in (None, "ben ")] == [36, 36]
    assert answered(running, prompt, "anna ") == 0


async def test_others_go_on_while_a_prompt_waits_for_its_blocks(tmp_path: Path) -> None:
    prompt = list(range(80))
    answered(Tiered(tmp_path), prompt)
    engine = Tiered(tmp_path)
    waiting = [engine.request([*prompt, tail], 3, SAMPLING) for tail in (1, 2)]
    other = engine.request([7] * 30, 20, SAMPLING)
    while engine.turn():
        pass
    for client in (*waiting, other):
        client.read()
    check(other)
    assert [client.end for client in waiting] == [None, None]
    assert len(engine.tiers._fetches) == 1, "two prompts wait for the same blocks"
    engine.finish()
    assert [client.cached for client in waiting] == [80, 80]


async def test_a_prompt_is_computed_where_that_is_faster(tmp_path: Path) -> None:
    prompt = list(range(40))
    answered(Tiered(tmp_path), prompt)
    assert answered(Tiered(tmp_path, costs=COMPUTING_PAYS), prompt) == 0
    assert answered(Tiered(tmp_path), prompt) == 36


async def test_memory_of_the_machine_alone_serves_what_the_engine_evicted() -> None:
    engine = Tiered(None, blocks=(30, 44), memory=1 << 20, running=1)
    answered(engine, prompt := list(range(40)))
    for first in range(3):
        answered(engine, [first] * 120)
    assert engine.cache._pools[1].find(next(iter(engine.tiers._blocks))[1]) is None
    assert answered(engine, prompt) == 36
    assert engine.tiers.counts.restored_from_memory == 36
    assert engine.tiers.measures()["cache_memory_bytes"] == len(engine.tiers._blocks) * PLACE * SIZE


# --- the folder --------------------------------------------------------------------------------------------


async def test_the_packs_used_longest_ago_go_first_and_pinned_ones_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(packs_module.time, "time", lambda: now[0])
    engine = Tiered(tmp_path)
    packs = engine.tiers._packs

    def used(first: int) -> int:
        now[0] += 10
        return answered(Tiered(tmp_path), [first] * 40)

    for first in range(4):
        used(first)
        for path in files(tmp_path):
            if path.stat().st_mtime > now[0]:
                os.utime(path, (now[0], now[0]))
    packs.refresh()
    assert used(1) == 36  # after 2 and 3
    oldest = min(files(tmp_path), key=lambda path: path.stat().st_mtime)
    packs.touch(packs._known[oldest], packs_module.PINNED)  # 0's
    packs._limit = sum(path.stat().st_size for path in files(tmp_path)) * 2 // 3
    packs.trim()
    assert [used(first) for first in (0, 1, 2)] == [36, 36, 0]


async def test_a_folder_that_takes_no_files_means_computing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Tiered(tmp_path)
    (tmp_path / "hashes" / packs_module.owner_folder("")).write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert answered(engine, list(range(40))) == 0
        assert answered(engine, [5, *range(40)]) == 0
    assert [record.message for record in caplog.records if "takes no blocks" in record.message] == [
        caplog.records[0].message
    ]
    (tmp_path / "hashes" / packs_module.owner_folder("")).unlink()
    monkeypatch.setattr(packs_module.time, "monotonic", lambda: float(1 << 40))
    assert answered(engine, [6, *range(40)]) == 0
    assert answered(Tiered(tmp_path), [6, *range(40)]) == 40


async def test_files_are_for_their_user_alone_and_hold_no_tokens(tmp_path: Path) -> None:
    answered(Tiered(tmp_path / "new"), [30_000 + at for at in range(40)])
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    [pack] = files(tmp_path / "new")
    assert (30_003).to_bytes(4, "little") not in pack.read_bytes()


# --- the engine with a folder ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _restoring_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """These models compute a token faster than a busy disk may read it."""
    monkeypatch.setattr("inference.local.tiers.opening.measured", lambda *_: RESTORING_PAYS)


@pytest.mark.parametrize("cuda", [False, True])
def test_the_costs_are_measured(checkpoint: Path, tmp_path: Path, cuda: bool) -> None:
    model = load_model(checkpoint, device=torch.device("cpu"))
    runner = CudaRunner(model, [9, 9], 2, 16) if cuda else TorchRunner(model, [9, 9], 16)
    costs = measured(runner, runner.memory, 2, 32, tmp_path)
    assert costs.token > 0
    assert 0 < costs.memory_byte < costs.disk_byte
    assert measured(runner, runner.memory, 2, 32, None).disk_byte > 0
    assert list(tmp_path.iterdir()) == []


def loaded(checkpoint: Path, folder: Path | None, **options: object) -> LocalEngine:
    chosen = EngineOptions(
        device="cpu", max_concurrent=2, cache_dir=None if folder is None else str(folder), **options
    )  # type: ignore[arg-type]
    return load_local(checkpoint, chosen, name="small")


async def scored(engine: LocalEngine, prompt: list[int]) -> tuple[list[TokenLogprob], int]:
    steps = (await generated(engine, replace(GREEDY, max_tokens=20, logprobs=20), prompt)).steps
    return [score for step in steps for score in step.logprobs or ()], sum(
        step.cached_tokens for step in steps
    )


async def test_a_restarted_engine_has_the_logits_of_an_uninterrupted_one_bit_for_bit(
    checkpoint: Path, tmp_path: Path
) -> None:
    draw = random.Random(3)
    prompt = [draw.randrange(500) for _ in range(611)]
    uninterrupted = loaded(checkpoint, tmp_path / "cache")
    first, _ = await scored(uninterrupted, prompt)
    turn = [*prompt, *(score.token for score in first), *range(30)]
    await all_stored(uninterrupted)
    shutil.copytree(tmp_path / "cache", tmp_path / "killed")
    wanted, cached = await scored(uninterrupted, turn)
    restarted = loaded(checkpoint, tmp_path / "killed")
    assert await scored(restarted, turn) == (wanted, cached)
    measures = restarted.measures()
    assert cached == measures["restored_from_disk"] == 624
    assert measures["cache_read_bytes"] > 0
    assert measures["cache_saved_seconds"] >= 0
    for engine in (uninterrupted, restarted):
        await engine.close()


async def test_an_engine_that_ends_writes_what_waits(checkpoint: Path, tmp_path: Path) -> None:
    engine = loaded(checkpoint, tmp_path)
    await scored(engine, [1] * 500)
    await engine.close()
    engine = loaded(checkpoint, tmp_path)
    assert (await scored(engine, [1] * 500))[1] == 496
    await engine.close()


async def test_other_weights_share_nothing(config: ModelConfig, checkpoint: Path, tmp_path: Path) -> None:
    folder, moved = tmp_path / "cache", tmp_path / "moved"
    other = write_random_checkpoint(tmp_path / "other", config, seed=4)
    shutil.copytree(checkpoint, moved)
    found = []
    for each in (checkpoint, other, moved, other):
        engine = loaded(each, folder)
        found.append((await scored(engine, [1] * 100))[1])
        await engine.close()
    assert found == [0, 0, 96, 96]


def test_what_cannot_be_cached_is_refused_with_a_sentence(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"--cache-dir: .*/file cannot be used: .* Choose a folder"):
        loaded(checkpoint, tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"--cache-dir: .* home"):
        loaded(checkpoint, Path("~nobody-here/x"))
    with pytest.raises(CheckpointError, match="needs the files of a checkpoint"):
        inference.load("random:tiny", device="cpu", options=EngineOptions(cache_dir=str(tmp_path)))
    with pytest.raises(CheckpointError, match="--cache-dir has no effect"):
        inference.load("scripted:x", options=EngineOptions(cache_dir=str(tmp_path)))
