"""List the models on this machine: the embedded one, and those in the Hugging Face cache."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings
from inference.download_size import in_words

EXAMPLES = """\
examples:
  gpt-oss-server list
  gpt-oss-server list --json

A model in any other folder is served by its path: gpt-oss-server serve ./folder"""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of a table")


def run(args: argparse.Namespace, settings: Settings) -> int:
    models = _models()
    if args.json:
        console.out(json.dumps(models, ensure_ascii=False))
        return 0
    width = max(len(str(model["name"])) for model in models)
    console.out(f"{'NAME':<{width}}  {'SIZE':>9}  WHERE")
    for model in models:
        size = in_words(int(str(model["bytes"])))
        console.out(f"{model['name']:<{width}}  {size:>9}  {model['path']}")
    if len(models) == 1:
        console.err("More: gpt-oss-server pull openai/gpt-oss-20b")
    return 0


def _models() -> list[dict[str, object]]:
    from inference import tiny
    from inference.naming.model_names import EMBEDDED

    models: list[dict[str, object]] = [_model(EMBEDDED, tiny.COMPACT, tiny.COMPACT.stat().st_size)]
    try:
        from inference.hub import cached_checkpoints

        cached = cached_checkpoints()
    except ImportError:  # without huggingface_hub there is no cache to list
        return models
    return models + [_model(repo, folder, _size(folder)) for repo, folder in cached]


def _model(name: str, path: Path, size: int) -> dict[str, object]:
    return {"name": name, "bytes": size, "path": str(path)}


def _size(folder: Path) -> int:
    """Follows links: the cache's snapshots link to its files."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
