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
_WIDTH = 31  # columns before what was found
_SANDBOXES = ("bubblewrap", "docker")


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_flags(parser, everything=False)


def run(args: argparse.Namespace, settings: Settings) -> int:
    found = asyncio.run(_examined(settings, shows=not args.json))
    problems = sum(each.state == "problem" for each in found)
    if args.json:
        checks = [
            {"check": f.check, "state": f.state.value, "found": f.found, "advice": f.advice} for f in found
        ]
        console.out(json.dumps({"ok": not problems, "checks": checks}, indent=2, ensure_ascii=False))
    elif problems:
        console.out(f"\n{problems} problem{'s' if problems > 1 else ''}, with these settings.")
    else:
        console.out("\nEverything that these settings need works.")
    return 1 if problems else 0


async def _examined(settings: Settings, *, shows: bool) -> list[Finding]:
    from gpt_oss_server.cli.doctor.finding import findings

    found: list[Finding] = []
    async for finding in findings(_checks(settings), settings):
        found.append(finding)
        if shows:
            console.out(_shown(finding))
    return found


def _checks(settings: Settings) -> list[tuple[str, Check]]:
    from gpt_oss_server.cli.doctor import machine, surroundings
    from gpt_oss_server.cli.doctor.keys import keys

    levels = [settings.python] if settings.python not in ("auto", "off") else list(_SANDBOXES)
    return [
        ("python", machine.python),
        ("torch", machine.torch),
        ("gpu", machine.gpu),
        ("triton", machine.triton),
        ("model", machine.model),
        ("model cache", machine.model_cache),
        ("network", surroundings.network),
        *(
            (f"python in {level}", surroundings.sandbox(level))
            for level in levels
            if settings.python != "off"
        ),
        ("browser", surroundings.browser),
        *([("mcp", surroundings.mcp)] if settings.mcp else []),
        ("store", surroundings.store),
        ("keys", keys),
        ("tls", surroundings.tls),
        ("port", _port),
    ]


async def _port(settings: Settings) -> Finding:
    """Listens, for a moment."""
    from gpt_oss_server.cli.commands.http_server import connection_limits, listen
    from gpt_oss_server.cli.doctor.finding import missing, ok
    from gpt_oss_server.cli.terminal.errors import CommandLineError

    try:
        with listen(settings.host, settings.port) as listener:
            listener.listen()
            host, port = listener.getsockname()[:2]
    except CommandLineError as error:
        return missing("port", str(error), "", needed=True)
    count = connection_limits(settings).count
    found = f"The server can listen on {host}, port {port}, for {count} connections."
    if count < settings.max_connections:
        advice = (
            f"For {settings.max_connections} (--max-connections), raise the limit of open files (ulimit -n)."
        )
        return missing("port", found, advice, needed=False)
    return ok("port", found)


def _shown(finding: Finding) -> str:
    state = console.styled(f"{finding.state:<8}", _COLOURS[finding.state], on=console.colourful(sys.stdout))
    shown = console.hanging(f"{state} {finding.check:<22}", finding.found, _WIDTH)
    if not finding.advice:
        return shown
    return f"{shown}\n{console.hanging(' ' * _WIDTH + '→ ', finding.advice)}"
