"""List the models on this machine: the embedded one, and those in the Hugging Face cache."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings
from inference.backends.hub import in_words

EXAMPLES = """\
examples:
  gpt-oss-server list
  gpt-oss-server list --json

A model in any other folder is served by its path: gpt-oss-server serve ./folder"""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of a table")


def run(args: argparse.Namespace, settings: Settings) -> int:
    models = list(_models())
    if args.json:
        rows = [{"name": name, "bytes": size, "path": str(path)} for name, size, path in models]
        console.out(json.dumps(rows, ensure_ascii=False))
        return 0
    columns = [(name, in_words(size), str(path)) for name, size, path in models]
    console.out(console.table([("NAME", "SIZE", "WHERE"), *columns]))
    if len(models) == 1:
        console.err("More: gpt-oss-server pull openai/gpt-oss-20b")
    return 0


def _models() -> Iterator[tuple[str, int, Path]]:
    """The name, the size in bytes and the path of each."""
    from inference import tiny
    from inference.backends.table import EMBEDDED

    yield EMBEDDED, tiny.COMPACT.stat().st_size, tiny.COMPACT
    try:
        from inference.backends.hub import cached_checkpoints

        cached = cached_checkpoints()
    except ImportError:  # without huggingface_hub there is no cache to list
        return
    for repo, folder in cached:  # of links to the cache's files, which `stat` follows
        yield repo, sum(path.stat().st_size for path in folder.glob("*.safetensors")), folder
