"""Check what works on this machine with these settings, and what to do about the rest."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING

from gpt_oss_server.cli.line.flags import add_flags, add_model
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from gpt_oss_server.cli.doctor.finding import Check, Finding

EXAMPLES = """\
examples:
  gpt-oss-server doctor
  gpt-oss-server doctor openai/gpt-oss-20b --device cuda --store sqlite
  gpt-oss-server doctor --config server.toml --json

All flags of serve work here. The exit code is 0 if all that these settings need works, and 1 if not."""

_COLOURS = {"ok": console.GREEN, "note": console.CYAN, "problem": console.RED}
_WIDTH = 31  # columns before the sentence
_SANDBOXES = ("bubblewrap", "docker")


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_flags(parser, everything=False)


def run(args: argparse.Namespace, settings: Settings) -> int:
    findings = asyncio.run(_examined(settings, shows=not args.json))
    problems = sum(finding.state == "problem" for finding in findings.values())
    if args.json:
        checks = [
            {"check": name, "state": f.state.value, "found": f.sentence, "advice": f.advice}
            for name, f in findings.items()
        ]
        console.out(json.dumps({"ok": not problems, "checks": checks}, indent=2, ensure_ascii=False))
    elif problems:
        console.out(f"\n{problems} problem{'s' if problems > 1 else ''}, with these settings.")
    else:
        console.out("\nEverything that these settings need works.")
    return 1 if problems else 0


async def _examined(settings: Settings, *, shows: bool) -> dict[str, Finding]:
    from gpt_oss_server.cli.doctor.finding import findings

    examined: dict[str, Finding] = {}
    async for name, finding in findings(_checks(settings), settings):
        examined[name] = finding
        if shows:
            console.out(_shown(name, finding))
    return examined


def _checks(settings: Settings) -> dict[str, Check]:
    from gpt_oss_server.cli.doctor import machine, surroundings

    levels = {"auto": _SANDBOXES, "off": ()}.get(settings.python, (settings.python,))
    here = (
        machine.python,
        machine.torch,
        machine.gpu,
        machine.triton,
        machine.engines,
        machine.model,
        machine.model_cache,
    )
    around = (surroundings.store, surroundings.keys, surroundings.tls, surroundings.port)
    return {
        **{check.__name__.replace("_", " "): check for check in here},
        "network": surroundings.network,
        **{f"python in {level}": surroundings.sandbox(level) for level in levels},
        "browser": surroundings.browser,
        **({"mcp": surroundings.mcp} if settings.mcp else {}),
        **({"embeddings": surroundings.embeddings} if settings.embeddings or settings.reranker else {}),
        **{check.__name__: check for check in around},
    }


def _shown(name: str, finding: Finding) -> str:
    state = console.styled(f"{finding.state:<8}", _COLOURS[finding.state], on=console.colourful(sys.stdout))
    shown = console.hanging(f"{state} {name:<22}", finding.sentence, _WIDTH)
    if not finding.advice:
        return shown
    return f"{shown}\n{console.hanging(' ' * _WIDTH + '→ ', finding.advice)}"
