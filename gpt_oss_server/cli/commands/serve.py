"""Serve a model over HTTP, until Ctrl-C."""

import argparse

from gpt_oss_server.cli.line.flags import add_flags, add_model
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server serve
  gpt-oss-server serve openai/gpt-oss-20b --host 0.0.0.0 --port 9000
  gpt-oss-server serve ./checkpoints/gpt-oss-20b --served-model-name gpt-oss-20b
  gpt-oss-server serve gpt-oss-20b.gguf --engine llama
  gpt-oss-server serve scripted:examples/script.json

The first Ctrl-C or SIGTERM lets running responses finish; a second one stops immediately."""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    add_model(parser)
    add_flags(parser, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.server.start import Start, check_packages

    check_packages(settings)
    start = Start(settings)
    start.begin()
    from gpt_oss_server.cli.server.http_server import listen, serve_until_stopped
    from gpt_oss_server.observe.logs.setup import set_up_logging

    set_up_logging(settings)
    # The port comes before the model: loading can take minutes, and a taken port should fail immediately.
    with listen(settings.host, settings.port) as listener:
        return serve_until_stopped(start, listener, settings)
