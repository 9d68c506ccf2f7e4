"""Run a coding agent with a model of this server: `launch` alone lists those that it knows.

It uses the server that runs at --host and --port, or at --url. Where none runs, or --model names another
model, it starts one with the flags of serve, and ends it with the agent. The agent's own configuration stays
as it is.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.launch.clients import CLIENTS, CONTEXT, Setup, Target, served_name
from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.line.flags import add_flags, flags_in
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server launch
  gpt-oss-server launch codex
  gpt-oss-server launch opencode --model openai/gpt-oss-20b --keep
  gpt-oss-server launch codex -- exec "Write a script that counts words"
  gpt-oss-server launch claude --url http://127.0.0.1:9000 --key secret
  gpt-oss-server launch codex --config

All flags of serve work here; they are for a server that this command starts."""

_ENOUGH = 65_536  # tokens of context: instructions and tools of these clients fill up to a third of it
_SECONDS = 20.0
_NOT_INSTALLED = 127  # as a shell has it
_SHORT = (
    "The context of {} is {:,} tokens, which coding agents fill soon. Start the server with --context {} or "
    "more, or without --context for the model's own."
)
_CONFIG = "print what the client would be given, and start nothing; with FILE: read settings from it"
_KEY = "the key that the client sends; a server that is started requires it"
_WAIT = "how long the server may take until it is ready (default: 1800)"


class _ConfigOrFile(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, name: Any = None) -> None:
        setattr(namespace, "prints" if value is None else "config", True if value is None else value)


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument(
        "client", nargs="?", choices=tuple(CLIENTS), metavar="CLIENT", help=", ".join(CLIENTS)
    )
    parser.add_argument("misplaced", nargs="*", metavar="-- WORD", help="words for the client")
    add = parser.add_argument_group("the client and its server", conflict_handler="resolve").add_argument
    add_flags(parser, everything=everything)
    add("--url", metavar="URL", help="the address of the server, instead of --host and --port")
    add("--key", dest="api_key", action="append", default=argparse.SUPPRESS, metavar="KEY", help=_KEY)
    add("--keep", action="store_true", help="let a server that is started run on, at --host and --port")
    add("--wait", type=float, default=1800.0, metavar="SECONDS", help=_WAIT)
    file: dict[str, Any] = {"nargs": "?", "default": argparse.SUPPRESS, "metavar": "FILE", "help": _CONFIG}
    add("--config", action=_ConfigOrFile, **file)  # in place of the flag of other commands
    parser.set_defaults(prints=False)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.misplaced:
        raise CommandLineError(f"Words for the client come after `--`: -- {shlex.join(args.misplaced)}")
    if args.client is None:
        _list()
        return 0
    client = CLIENTS[args.client]
    if args.prints:
        printed = _printed_target(args, settings)
        _warn_of_short_context(printed)
        console.out(_script(client.name, client.setup(printed), args.passed_on))
        return 0
    program = shutil.which(client.name)
    if program is None:
        console.err(client.missing)
        return _NOT_INSTALLED
    from gpt_oss_server.cli.launch.process import exit_on_signals, run_in_terminal

    exit_on_signals()
    with ExitStack() as stack:
        folder = _state_folder()
        if args.keep:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-")))
        target = stack.enter_context(_target(args, settings, folder))
        _warn_of_short_context(target)
        setup = client.setup(target)
        setup.write_files()
        words = [program, *setup.words, *args.passed_on]
        return run_in_terminal(words, {**os.environ, **setup.variables})


def _warn_of_short_context(target: Target) -> None:
    if target.context < _ENOUGH:
        console.err(_SHORT.format(target.model, target.context, _ENOUGH))


def _list() -> None:
    rows = [("NAME", "WHAT IT IS", "API", "INSTALLED")]
    for client in CLIENTS.values():
        where = shutil.which(client.name) or f"no: {client.install}"
        rows.append((client.name, client.about, client.api, where))
    console.out(console.table(rows))


@contextmanager
def _target(args: argparse.Namespace, settings: Settings, folder: Path) -> Iterator[Target]:
    """At a server that is ready. One that is started here ends with the block, unless it is kept."""
    from gpt_oss_server.cli.launch.server import answers, reach_without_proxy, start, wait_until_ready
    from gpt_oss_server.cli.server.http_server import listen

    url, wanted = _url(args, settings, settings.port), vars(args).get("model")
    reach_without_proxy(url)
    runs = args.url or answers(url)
    if runs:
        wait_until_ready(url, f"the server at {url}", args.wait)
        target, served = _target_at(url, settings, folder, wanted)
        if target is not None:
            yield target
            return
        problem = f"The server at {url} serves {served}, not {wanted}"
        if args.url:
            raise CommandLineError(f"{problem}. Leave --model out.")
        console.err(f"{problem}: another is started.")
    port = settings.port
    if runs or not (args.keep and port):
        with listen(settings.host, 0) as free:
            port = free.getsockname()[1]
        url = _url(args, settings, port)
    words, log = [*flags_in(vars(args)), f"--port={port}"], folder / f"server-{port}.log"
    started, keeps = start(words, log, stays=args.keep), False
    try:
        wait_until_ready(url, settings.model, args.wait, started)
        target, _ = _target_at(url, settings, folder)
        assert target is not None, "a server lists its model"
        yield target
        if end := started.end:
            console.err(end)
        keeps = args.keep and not end
    finally:
        if not keeps:
            started.stop()
    if keeps:
        end = f"`kill {started.process.pid}` ends it, and its log is {started.log}."
        console.err(f"The server runs on at {url}: {end}")


def _url(args: argparse.Namespace, settings: Settings, port: int) -> str:
    from gpt_oss_server.cli.chat.remote import base_url
    from gpt_oss_server.cli.server.http_server import http_url

    if args.url:
        return base_url(args.url).removesuffix("/v1")
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "") else settings.host
    return http_url(host, port, "https" if settings.tls_cert else "http")


def _target_at(
    url: str, settings: Settings, folder: Path, model: str | None = None
) -> tuple[Target | None, str]:
    """None if the server does not serve that model; and what it serves."""
    from gpt_oss_server.cli.chat.remote import ServerApi

    entries = ServerApi(url, _key(settings)).models(_SECONDS)
    # A checkpoint is served under the last part of its path.
    fits = (entry for entry in entries if model is None or entry["id"] in (model, Path(model).name))
    served = ", ".join(str(entry["id"]) for entry in entries)
    if (entry := next(fits, None)) is None:
        return None, served or "no model"
    context = entry.get("context_length") or CONTEXT
    return Target(url, _key(settings), str(entry["id"]), context, folder), served


def _key(settings: Settings) -> str:
    return settings.api_key[0] if settings.api_key else "any"


def _state_folder() -> Path:
    from gpt_oss_server.stores.sealing import state_folder

    return state_folder() / "launch"


# --- --config --------------------------------------------------------------------------------------


def _printed_target(args: argparse.Namespace, settings: Settings) -> Target:
    """At the server that runs, or as `serve` would start it with these settings."""
    from gpt_oss_server.cli.launch.server import answers

    url, folder = _url(args, settings, settings.port), _state_folder()
    if args.url or answers(url):
        target, served = _target_at(url, settings, folder, vars(args).get("model"))
        if target is None:
            raise CommandLineError(f"The server at {url} serves {served}. Leave --model out.")
        return target
    console.err(f"No server runs at {url}. This is for one that `{PROGRAM} serve` starts there.")
    return Target(url, _key(settings), served_name(settings), settings.context or CONTEXT, folder)


def _script(program: str, setup: Setup, further: Sequence[str]) -> str:
    """As a script of a shell, whose last line runs the client."""
    lines = []
    for path, text in setup.files.items():
        folder, file = shlex.quote(str(path.parent)), shlex.quote(str(path))
        lines += [f"mkdir -p -m 700 {folder}", f"cat > {file} <<'END'\n{text}END"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in setup.variables.items()]
    return "\n".join([*lines, shlex.join([program, *setup.words, *further])])
