"""What a terminal shows once a server can generate: the model, its addresses, and a request to try."""

import os
import shutil
from pathlib import Path

from gpt_oss_server.cli.terminal.console import hanging, introduction
from gpt_oss_server.models.model import ANY_MODEL
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.kinds.places import kept_where
from inference.backends.table import runs_here
from inference.engine import EngineInfo
from inference.started.choice import SIZES, WITH_CONTEXTS
from inference.started.machine import this_machine
from inference.started.programs import LLAMA

# The log has the whole sentence before the model is loaded.
_EXPOSED = "Other machines can reach this server, and it needs no key (--api-key, --api-key-file)."


def greeting(settings: Settings, model: EngineInfo, url: str, exposed: bool = False, ca: str = "") -> str:
    with_key = settings.needs_keys
    keys = "with an API key" if with_key else "any API key"
    rows = [
        ("Model", introduction(model.name, model.description)),
        ("Names", _further_names(settings, model)),
        ("Further", ", ".join(settings.by_model)),
        ("Context", f"{model.context_length:,} tokens"),
        ("Memory", model.plan),
        ("Store", kept_where(settings.store)),
        ("Cache", _cache(settings)),
        ("API", f"{url}/v1   (Responses, Chat Completions, Messages; {keys})"),
        ("Browser", f"{url}   (the playground)" if settings.web == "on" else ""),
        ("Next", _published_model(settings)),
    ]
    shown = "\n".join(_row(label, text) for label, text in rows if text)
    warning = f"\n{_row('Warning', _EXPOSED)}\n" if exposed else ""
    key = ' -H "Authorization: Bearer $OPENAI_API_KEY"' if with_key else ""
    return f"""
{shown}
{warning}
  Try      curl {ca}{url}/v1/responses -H "Content-Type: application/json"{key} \\
             -d '{{"input": "Who are you?"}}'

{_row("Ctrl-C", "lets running responses finish; a second one stops immediately.")}
"""


def _cache(settings: Settings) -> str:
    """Where prompts are kept; else what would keep them, if the engine can and a disk has room."""
    if settings.cache_dir is not None:
        return f"prompts in {settings.cache_dir}, up to {settings.cache_disk / 2**30:g} GiB"
    home = Path(os.path.expanduser("~"))
    free = shutil.disk_usage(home).free if home.is_dir() else 0
    if not runs_here(settings.model, settings) or free < 2 * settings.cache_disk:
        return ""
    return (
        f"--cache-dir ~/.cache/gpt-oss-server/prompts keeps prompts after a restart ({free >> 30:,} GiB free)"
    )


def _published_model(settings: Settings) -> str:
    """How this machine serves a model of use, where it serves the embedded one."""
    if settings.model != "tiny":
        return ""
    here = this_machine(settings.device)
    needs = {name: size * WITH_CONTEXTS for name, size in SIZES.items()}
    on_cards = [name for name, size in needs.items() if size < here.of_cards]
    name = on_cards[-1] if on_cards else "gpt-oss-20b"
    if not on_cards and needs[name] > here.memory:
        return f"{name} needs {needs[name] / 1e9:.0f} GB, too much here: --model llama:URL serves another's"
    by = "" if on_cards else " with llama-server" if LLAMA.found() else " with llama-server (see doctor)"
    return f"--model openai/{name}{by}; make serve MODEL=openai/{name} ({SIZES[name] / 1e9:.0f} GB)"


def _row(label: str, text: str) -> str:
    return hanging(f"  {label:<8} ", text)


def _further_names(settings: Settings, model: EngineInfo) -> str:
    names = [*dict.fromkeys((model.name, *settings.served_model_name))]
    if ANY_MODEL in names:
        names.remove(ANY_MODEL)
        names.append("any other name")
    return ", ".join(names) if len(names) > 1 else ""
