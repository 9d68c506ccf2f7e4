"""Checks of the machine: Python, torch, the GPU, triton, the cache of models and its disk, the model."""

import asyncio
import json
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.doctor.finding import Finding, missing, ok
from gpt_oss_server.cli.server.start import load_engine
from gpt_oss_server.settings import Settings
from inference.backends.checkpoints import hub_repo
from inference.backends.table import is_checkpoint, runs_here
from inference.engine import InferenceError, Sampling
from inference.started.choice import SIZES, WITH_CONTEXTS, chosen_program
from inference.started.machine import this_machine
from inference.started.programs import LLAMA, PROGRAMS
from tools.extras import install_again, install_extra

_KERNELS_FROM = (8, 0)  # the least capability for which the kernels are written
_GB = 1e9
_TOKENS = 8


async def python(settings: Settings) -> Finding:
    return ok(f"Python {platform.python_version()} at {sys.executable}.")


async def torch(settings: Settings) -> Finding:
    facts, needed = await _facts(), runs_here(settings.model, settings)
    if "failed" in facts:
        return missing(facts["failed"], install_again("torch"), needed=needed)
    if facts["cpu"] is not None:
        problem = f"torch {facts['torch']} does not compute on this CPU: {facts['cpu']}."
        return missing(problem, "Install a torch that is built for this CPU.", needed=needed)
    return ok(f"torch {facts['torch']} computes here, with {facts['threads']} threads.")


async def gpu(settings: Settings) -> Finding:
    facts, needed = await _facts(), settings.device == "cuda" and runs_here(settings.model, settings)
    if "failed" in facts:
        return missing("Without torch no GPU can be used.", "See torch, above.", needed=needed)
    card = facts["gpu"]
    if "name" not in card:
        return missing(*_no_card(facts), needed=needed)
    if card["error"]:
        problem = f"{card['name']} does not compute: {card['error']}."
        return missing(problem, "Update its driver, or restart the machine.", needed=True)
    memory = f"{card['free'] / _GB:.1f} of {card['total'] / _GB:.1f} GB free"
    major, minor = card["capability"]
    sentence = f"{card['name']} computes ({memory}, capability {major}.{minor})."
    if (major, minor) < _KERNELS_FROM:
        advice = "The kernels need capability 8.0; models run more slowly here, in plain torch."
        return missing(sentence, advice, needed=False)
    return ok(sentence)


def _no_card(facts: dict[str, Any]) -> tuple[str, str]:
    if facts["built_for_cuda"] is None:
        reason = "this torch is built for the CPU alone."
        advice = "Install a torch with CUDA (https://pytorch.org/get-started)."
    else:
        reason = facts["gpu"]["error"]
        advice = "Update the driver, or in a container pass the device in (--gpus all)."
    if not Path("/proc/driver/nvidia").exists() and shutil.which("nvidia-smi") is None:
        advice = "None is needed for the embedded model; gpt-oss-20b wants one with 24 GB."
    return f"No GPU can be used: {reason}", advice


async def triton(settings: Settings) -> Finding:
    result = (await _facts()).get("triton")
    if result is None:
        return missing("triton is not used without a GPU.", needed=False)
    if "missing" in result:
        advice = f"{install_extra('gpu')}; until then models run more slowly, in plain torch."
        return missing(f"triton is not installed ({result['missing']}).", advice, needed=False)
    if result["error"]:
        advice = "It needs a C compiler and Python's headers: apt install gcc python3-dev"
        problem = f"triton {result['version']} cannot compile a kernel: {result['error']}."
        return missing(problem, advice, needed=True)
    return ok(f"triton {result['version']} compiled a kernel, which computes right.")


async def engines(settings: Settings) -> Finding:
    """The programs that `--engine` can start, and what the published models would need."""
    here = await asyncio.to_thread(this_machine, settings.device)
    paths = {program.title: program.found() for program in PROGRAMS.values()}
    found = ["the built-in engine", *(f"{title} ({path})" for title, path in paths.items() if path)]
    free = max(here.memory, here.of_cards)
    where = "cards" if here.of_cards > here.memory else "memory"
    sizes = {name: size * WITH_CONTEXTS for name, size in SIZES.items()}
    needs = [
        f"{name} takes {size / _GB:.0f}{'' if size < free else ', too many'}" for name, size in sizes.items()
    ]
    sentence = f"Here: {', '.join(found)}. Of {free / _GB:.0f} GB of free {where}, {'; '.join(needs)}."
    chosen = chosen_program(settings.model, settings) if is_checkpoint(settings.model) else None
    if chosen is not None and chosen.found(settings.engine_program) is None:
        return missing(
            sentence, f"{settings.model} needs {chosen.title}. {chosen.how_to_install()}", needed=True
        )
    if not any(paths.values()):
        return missing(
            sentence, f"For models that no card here holds: {LLAMA.how_to_install()}", needed=False
        )
    return ok(sentence)


async def model_cache(settings: Settings) -> Finding:
    from huggingface_hub.constants import HF_HUB_CACHE

    folder, repo = Path(HF_HUB_CACHE), hub_repo(settings.model)
    try:
        await asyncio.to_thread(_write_there, folder)
    except OSError as error:
        problem = f"The folder of downloaded models, {folder}, cannot be written: {error.strerror}."
        return missing(problem, "Set HF_HOME to a folder that can.", needed=repo is not None)
    free = shutil.disk_usage(folder).free
    wanted = next((size for name, size in SIZES.items() if name in settings.model), 0)
    sentence = f"Downloaded models go to {folder}, with {free / _GB:.1f} GB free."
    if repo is not None and wanted > free and not await asyncio.to_thread(_is_cached, repo):
        advice = f"{settings.model} takes {wanted / _GB:.1f} GB: free some, or set HF_HOME to a larger disk."
        return missing(sentence, advice, needed=True)
    too_large = [f"{name} ({size / _GB:.1f} GB)" for name, size in SIZES.items() if size > free]
    if too_large:
        return missing(sentence, f"Too little for {' and '.join(too_large)}.", needed=False)
    return ok(sentence)


async def model(settings: Settings) -> Finding:
    """Generates a few tokens, but with a checkpoint of gigabytes: loading it is the server's work."""
    name = settings.model
    if (repo := hub_repo(name)) is not None:
        if await asyncio.to_thread(_is_cached, repo):
            return ok(f"{name} is complete in the cache. It was not loaded.")
        advice = f"The server downloads it at its first start; to do it now: gpt-oss-server pull {name}"
        return missing(f"{name} is not on this machine yet.", advice, needed=False)
    if name.startswith("random:") or await asyncio.to_thread(_is_folder, name):
        return ok(f"{name} is a model of this machine. It was not loaded.")
    try:
        return ok(await _generated(settings))
    except InferenceError as error:
        return missing(f"--model {name} cannot generate. {error}", needed=True)


async def _generated(settings: Settings) -> str:
    from gpt_oss_server.harmony.encoding import load_encoding

    memory = 64 << 20 if runs_here(settings.model, settings) else None
    small = replace(settings, context=None, max_concurrent=1, kv_memory=memory)
    engine = await asyncio.to_thread(load_engine, small, progress=False)
    try:
        prompt = load_encoding().encode_special("<|start|>user<|message|>Hello<|end|><|start|>assistant")
        began, count = time.monotonic(), 0
        async for step in engine.generate(prompt, Sampling(max_tokens=_TOKENS)):
            count += len(step.tokens)
        seconds = time.monotonic() - began
        where = engine.info.description.rstrip(".")
        return f"{engine.info.name} generated {count} tokens in {seconds:.1f} s ({where})."
    finally:
        await engine.close()


def _is_folder(name: str) -> bool:
    return Path(name).expanduser().is_dir()


def _is_cached(repo: str) -> bool:
    from inference.backends.hub import cached_checkpoints

    return repo in dict(cached_checkpoints())


def _write_there(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"x")


async def _facts() -> dict[str, Any]:
    return await asyncio.shield(_begun_probe(asyncio.get_running_loop()))


@cache
def _begun_probe(loop: asyncio.AbstractEventLoop) -> asyncio.Task[dict[str, Any]]:
    """One process for all checks."""
    return loop.create_task(_probe())


async def _probe() -> dict[str, Any]:
    words, pipe = (sys.executable, "-m", "gpt_oss_server.cli.doctor.torch_probe"), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    try:
        facts: dict[str, Any] = json.loads(out)
        return facts
    except ValueError:
        last = (err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return {"failed": f"torch cannot be used: {last}."}
