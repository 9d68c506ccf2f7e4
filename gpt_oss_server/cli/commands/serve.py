"""Serve a model over HTTP, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from gpt_oss_server.cli.commands.loading import load_engine
from gpt_oss_server.cli.commands.start_checks import check_start
from gpt_oss_server.cli.line.flags import add_flags, add_model
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server serve
  gpt-oss-server serve openai/gpt-oss-20b --host 0.0.0.0 --port 9000
  gpt-oss-server serve ./checkpoints/gpt-oss-20b --served-model-name gpt-oss-20b
  gpt-oss-server serve scripted:examples/script.json

The first Ctrl-C lets running responses finish; a second one stops immediately."""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    add_model(parser)
    add_flags(parser, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    # Imported here, because these load torch, and `--help` should not wait for it.
    from gpt_oss_server.cli.commands.http_server import listen, serve_until_stopped, set_up_logging

    set_up_logging(settings)
    # The port comes before the model: loading can take minutes, and a taken port should fail immediately.
    with listen(settings.host, settings.port) as listener:
        with _stopped_in_order():
            from gpt_oss_server.app import create_app

            check_start(settings)
            engine = load_engine(settings)
            app = create_app(engine, settings)
        serve_until_stopped(app, listener, settings, engine)
    return 0


@contextmanager
def _stopped_in_order() -> Iterator[None]:
    """Lets SIGTERM clean up while the model loads.

    The first process of a container has no default action for SIGTERM, and would ignore it.
    """
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
