"""The command line: takes words and returns an exit code.

0: success. 1: failure, with a sentence on standard error. 2: the command line itself is wrong. A user's
mistake never causes a traceback. Each command imports what it needs when it runs, so that `--help` and
`version` are fast.
"""

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence

from gpt_oss_server import __version__
from gpt_oss_server.cli.line.corrections import PROGRAM, corrected, expanded
from gpt_oss_server.cli.line.flags import passed_on, settle_words, whole_switches
from gpt_oss_server.cli.parser import build_parser
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.own_packages import foreign_packages
from gpt_oss_server.settings import Settings, SettingsError, misspelt_variables, read_configuration


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A character that cannot be decoded or encoded is replaced; the rest of the text survives.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if foreign := foreign_packages():
        start = f"Start from another folder, or with the command `{PROGRAM}`"
        console.err(f"{foreign} {start}, which does not look in the current one.")
        return 1
    words, rest = passed_on(whole_switches(expanded(sys.argv[1:] if argv is None else argv)))
    parser = build_parser(everything="--help-all" in words)
    if correction := corrected(words, parser.subcommands):
        console.err(correction)
        return 2
    args, further = parser.parse_known_args(words)
    args.passed_on = rest
    if args.version:
        console.out(f"{PROGRAM} {__version__}")
        return 0
    if args.command is None:
        parser.error("a command is missing, such as serve or chat")
    return _run(args, further)


def _run(args: argparse.Namespace, further: Sequence[str]) -> int:
    try:
        for strange, meant in misspelt_variables(os.environ):
            console.err(f"The variable {strange} is not a setting. Did you mean {meant}?")
        settle_words(vars(args), further)
        args.configuration = read_configuration(vars(args), os.environ)
        settings = args.configuration.settings
    except SettingsError as error:
        console.err(str(error))
        return 2
    try:
        code: int = args.run(args, settings)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        console.give_up_output()  # `… | head`
        return 1
    except OSError as error:
        named = f": {error.filename}" if error.filename else ""
        console.err(f"The system refused: {error.strerror or error}{named}.")
        return 1
    except Exception as error:
        return _report(error, settings)
    return code


def _report(error: Exception, settings: Settings) -> int:
    """Shows the sentence of an expected error; any other is a bug."""
    from gpt_oss_server.errors import ApiError
    from inference.engine import InferenceError

    if isinstance(error, console.CommandLineError | SettingsError | InferenceError | ApiError):
        if settings.log_format == "json" and logging.getLogger().handlers:
            logging.getLogger(PROGRAM).critical("%s", error)
        else:
            console.err(str(error))
        return 1
    if settings.log_level == "debug":
        raise error
    bug = f"A bug in {PROGRAM}: {type(error).__name__}: {error}."
    console.err(f"{bug} `--log-level debug` shows where.")
    return 1
