"""Writes the generated docs; with --check, fails when they are stale.

Renders docs/settings.md from the table of settings, docs/cli.md from the help of the commands,
docs/hardware.md from the models' shapes, docs/metrics-reference.md from the table of figures, docs/errors.md
from the classes of errors, and docs/reference from the code that each page is about (`generate_pages`).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from generate_pages.apis import API_PAGES
from generate_pages.errors import errors_page
from generate_pages.events import events_page, items_page
from generate_pages.markdown import NOTE, code, table
from generate_pages.python_api import python_api_page
from generate_pages.script import script_page

from gpt_oss_server.cli.parser import build_parser
from gpt_oss_server.observe.metrics import vllm_names
from gpt_oss_server.observe.metrics.table import PREFIX, TABLE
from gpt_oss_server.settings import OPTIONS
from gpt_oss_server.settings.options import Option
from inference.bench.roofline import Widths, decode_bytes, kept_bytes
from inference.config import SHAPES, ModelConfig

ROOT = Path(__file__).resolve().parent.parent

SETTINGS_HEAD = f"""{NOTE}
# Settings

Each setting is a flag of `gpt-oss-server serve`, an environment variable, and a field of
`gpt_oss_server.settings.Settings` (the flag's name with underscores). That name is also its row in a
[configuration file](configuration.md). A flag wins over its variable, and both win over the file.
Sizes are bytes or `64MiB`; times are seconds or `90s`, `15m`, `12h`, `30d`; switches are `--flag` and
`--no-flag`, or `on` and `off` in a variable. Commas separate a list in a variable. An empty variable counts
as unset. A setting that can be a secret can be in a file: `--engine-key-file`,
`GPT_OSS_SERVER_ENGINE_KEY_FILE`.
"""

CLI_HEAD = f"""{NOTE}
# The command line

Exit codes: 0 for success; 1 for a failure, which a sentence on standard error explains; 2 for a wrong command
line or setting; 130 for an interrupt. `serve` has further ones: see [the life of a server](lifecycle.md).
"""

BF16 = 2  # bytes

HARDWARE_HEAD = f"""{NOTE}
# Which machine for which model

Computed from the models' shapes, with the weights as published (experts in MXFP4, the rest in bf16) and keys
and values in bf16. A running server needs somewhat more memory, for PyTorch and its kernels.

"""

HARDWARE_END = """
Only every second layer keeps all keys and values; the others keep a window of 128 tokens. Sequences with a
common beginning share it.

| you have | gpt-oss-20b | gpt-oss-120b |
|---|---|---|
| a card with 16 GB | `llama:URL`, with some layers in the machine's memory | no |
| a card with 24 GB | `serve openai/gpt-oss-20b` | no |
| a card with 80 GB | the same, and over 2 million tokens of keys and values | `serve openai/gpt-oss-120b` |
| several cards | a server for each card behind a proxy, with one database | `vllm:URL`, `sglang:URL` |
| no card, 32 GB of memory | `llama:URL` | no |
| no card, 96 GB of memory | `llama:URL` | `llama:URL` |

The built-in engine runs on one card (Ampere or later; tuned for Hopper), or on a CPU, where it is exact
and meant for small models. For everything else, put this server in front of llama-server, vLLM or
SGLang ([Other engines](engines.md), [Scaling](scaling.md)). The published models themselves were not run
here: measured speeds are of their shapes with random weights ([Performance](performance.md)).
"""

METRICS_HEAD = f"""{NOTE}
# All figures of `/metrics`

[Metrics and traces](metrics.md) explains when they count.

"""


def settings_page() -> str:
    parts = [SETTINGS_HEAD]
    for section in dict.fromkeys(option.section for option in OPTIONS):
        rows = [
            (code(o.flag), code(o.variable), code(o.shown_default), o.help + _also(o))
            for o in OPTIONS
            if o.section == section
        ]
        parts.append(f"\n## {section}\n\n{table(('flag', 'variable', 'default', 'what it is'), rows)}")
    return "".join(parts)


def cli_page() -> str:
    os.environ["COLUMNS"] = "100"  # argparse wraps at the terminal's width
    parser = build_parser()
    pages = [CLI_HEAD, _help("gpt-oss-server", parser)]
    pages += [_help(f"gpt-oss-server {name}", command) for name, command in parser.subcommands.items()]
    return "\n".join(pages)


def _weight_bytes(shape: ModelConfig) -> float:
    """Of all but biases and norms: what a step reads in which every expert is used, and the embedding."""
    return decode_bytes(shape, 10_000, 0, Widths(BF16, BF16, BF16)) + shape.vocab_size * shape.hidden * BF16


def hardware_page() -> str:
    """Sizes are computed, so that they hold for machines on which it has not run."""
    head = ("model", "weights", "keys and values of 10,000 tokens", "of a whole context of 131,072")
    rows = [
        (
            f"gpt-oss-{name}",
            f"{_weight_bytes(shape) / 1e9:.1f} GB",
            f"{kept_bytes(shape, 10_000, BF16) / 1e9:.2f} GB",
            f"{kept_bytes(shape, shape.context_length, BF16) / 1e9:.1f} GB",
        )
        for name, shape in SHAPES.items()
        if name != "tiny"
    ]
    return HARDWARE_HEAD + table(head, rows) + HARDWARE_END


def metrics_page() -> str:
    rows = []
    for figure in TABLE:
        name = f"{PREFIX}{figure.name}" + ("_total" if figure.kind == "counter" else "")
        labels = ", ".join(map(code, figure.labels))
        known = vllm_names.NAMES.get(figure)
        also = "" if known is None else code(vllm_names.PREFIX + known)
        rows.append((code(name), figure.kind, labels, also, figure.help))
    reasons = f"`{vllm_names.PREFIX}{vllm_names.SUCCESS}` counts `{PREFIX}turns_total` by vLLM's reasons."
    process = "In addition, `process_…` has the processor time, memory and open files of the process."
    figures = table(("figure", "kind", "labels", "vLLM's name", "what it is"), rows)
    return f"{METRICS_HEAD}{figures}\n{reasons}\n{process}\n"


PAGES = {
    "docs/hardware.md": hardware_page,
    "docs/settings.md": settings_page,
    "docs/cli.md": cli_page,
    "docs/metrics-reference.md": metrics_page,
    "docs/errors.md": errors_page,
    "docs/reference/responses-events.md": events_page,
    "docs/reference/responses-items.md": items_page,
    "docs/reference/script-format.md": script_page,
    "docs/reference/python-api.md": python_api_page,
    **API_PAGES,
}


def stale_pages() -> list[str]:
    return [name for name, make in PAGES.items() if not _is(ROOT / name, make())]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated docs.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")
    if parser.parse_args().check:
        stale = stale_pages()
        if stale:
            sys.stderr.write(f"Stale: {', '.join(stale)}. Run `make docs` and commit the result.\n")
        return 1 if stale else 0
    for name, make in PAGES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")
    return 0


def _help(title: str, parser: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def _also(option: Option) -> str:
    """The flag's names in other programs."""
    return f" Also: {', '.join(f'`{name}`' for name in option.also)}." if option.also else ""


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
