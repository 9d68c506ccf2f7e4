"""Mistakes of users: each is a sentence on stderr with what works here."""

import shlex
import socket
import sys
from pathlib import Path

import pytest

from gpt_oss_server.cli.line.corrections import corrected, expanded
from gpt_oss_server.cli.line.flags import settle_words
from gpt_oss_server.cli.parser import build_parser
from gpt_oss_server.models.limits import least_context
from gpt_oss_server.settings import Settings, read_configuration
from tests.doubles.commands import ANSWER, refused, run, script

NEVER = "serve --model ./never/looked/at --port 0"
# What the error begins with, by the line; {folder} is an empty folder.
WRONG_LINES = {
    "store": "`store` needs ACTION (stat, vacuum or delete).",
    "store stats": "ACTION is stat, vacuum or delete, not 'stats'. Did you mean stat?",
    "export": "`export` needs FORMAT (gguf) and PATH (the file to write).",
    "pull": "`pull` needs MODEL (a Hugging Face repo, such as openai/gpt-oss-20b).",
    "serve --port": "--port needs a value.",
    "chat --effort huge": "--effort is none, minimal, low, medium, high, xhigh or max, not 'huge'.",
    "render --json --tokens x": "--tokens and --json exclude each other.",
}
# What the error holds, by the line.
WRONG_WORDS = {
    "": "A command is missing, such as serve or chat. See `gpt-oss-server --help`.",
    "--verson": "There is no flag --verson. Did you mean --version?",
    "swerve": "Did you mean `serve`?\nTry: gpt-oss-server serve\n",
    "conjure": "There is no command `conjure`. Commands: serve, chat,",
    "serve --version": "\nTry: gpt-oss-server --version\n",
    "serve -V": "\nTry: gpt-oss-server --version\n",
    "serve --prot 1": "Did you mean --port?\nTry: gpt-oss-server serve --port 1\n",
    "serve --xyz": "`serve` has no flag --xyz. `gpt-oss-server serve --help-all` lists all flags.",
    "serve tiny -m random:20b": "Two models are named, tiny and random:20b.",
    "serve --model tiny --port 0 -m random:20b": "Two models are named, tiny and random:20b.",
    "chat tniy": "There is no model 'tniy'. Did you mean tiny?",
    "chat gpt-oss-20bb 'What is Harmony?'": "Did you mean openai/gpt-oss-20b?",
    "serve --port x": "--port must be a whole number from 0 to 65535, not 'x'.",
    "serve --config {folder}/server.toml": "Did you mean port?",
}
FAILURES = {
    "serve --model ./no/such/folder --port 0": "no/such/folder",
    "serve --model scripted:no-such-file.json --port 0": "no-such-file.json",
    "serve --host no.such.host.invalid --port 0": "no.such.host.invalid",
    f"{NEVER} --mcp notes=no-such-command-anywhere": "The command of the MCP server 'notes' was not found.",
    f"{NEVER} --mcp 'notes={sys.executable} -c pass'": "--mcp notes: ",
    f"{NEVER} --embeddings http://127.0.0.1:1": "Start that server first, or leave the flag out.",
    f"{NEVER} --reranker ftp://here --reranker-key s3cret": "--reranker must be the base URL of a server",
    f"{NEVER} --sealing-key-file ~nobody-of-this-name/key": "--sealing-key-file: ",
    f"{NEVER} --sealing-key-file {{folder}}": "--sealing-key-file: ",
    f"{NEVER} --sealing-key-file /proc/never/key": "--sealing-key-file: ",
    "chat --model scripted:no-such-file.json": "no-such-file.json",
    "chat --api-key secret hi": "--url",
    "chat -m {model} -": "The question is empty.",
    "chat {model} --context 10 Hello": "A context of 10 tokens is too short to answer anything",
    "chat -b --model ./missing hi": "-b is not available: The browser is off. Start with --browser local:DIR",
    "chat -p --python off hi": "-p is not available: The python tool is off. Start with --python auto.",
    "chat -b --browser nonsense hi": "nonsense",
    "render no-such-file.json": "Cannot read no-such-file.json",
    "bench --prompt many": "--prompt must be lengths such as 128",
    "bench --model {model} --prompt 200000": "exceed the context of 131072",
    "pull gpt-oss:20b": "Try: gpt-oss-server pull openai/gpt-oss-20b",
    "pull tiny": "tiny is embedded in this program",
    "pull llama3": "Name it as owner/name.",
    "mcp browser --browser off": "nowhere to search",
    "mcp browser --browser local:/no/such/folder": "no/such/folder",
    "mcp python --python off": "--python auto",
    "mcp browser --browser local:. --port 1": "need --http",
    "mcp browser --browser local:. --http --port 99999": "Cannot listen on",
    "store stat": "--store memory keeps nothing outside of a running server.",
    "store stat resp_1 --store sqlite": "store stat concerns the whole store",
    "store delete --store sqlite": "Name what to delete",
    "trace resp_1 --url 127.0.0.1:1": "No server answers",
}
# The same, by the line and what standard input holds.
WRONG_INPUTS = {
    ("render -", "{"): "Standard input is not a request. The request body is not valid JSON",
    ("render -", "[]"): "must hold a JSON object",
    ("render -", '{"input": 5}'): "input",
    ("render -", "[" * 100_000 + "]" * 100_000): "nested",
    ("render -", '{"input": NaN}'): "NaN",
    ("render -", '{"messages": [{"role": "nobody"}]}'): "nobody",
}


def error_of(line: str, folder: Path, code: int, stdin: str = "") -> str:
    (folder / "server.toml").write_text("prot = 1")
    words = shlex.split(line.format(folder=folder, model=script(folder, ANSWER)))
    return refused(*words, code=code, stdin=stdin, env={"EXA_API_KEY": "", "XDG_STATE_HOME": str(folder)})


@pytest.mark.parametrize(("line", "sentence"), WRONG_LINES.items())
def test_a_wrong_line_is_answered_with_a_sentence_and_the_command_to_read(
    line: str, sentence: str, tmp_path: Path
) -> None:
    help = f"See `gpt-oss-server {line.split()[0]} --help`."
    assert error_of(line, tmp_path, 2) == f"{sentence} {help}\n"


@pytest.mark.parametrize(
    ("code", "line", "stdin", "sentence"),
    [
        *((2, line, "", sentence) for line, sentence in WRONG_WORDS.items()),
        *((1, line, "", sentence) for line, sentence in FAILURES.items()),
        *((1, *typed, sentence) for typed, sentence in WRONG_INPUTS.items()),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_read_or_done_is_a_sentence(
    code: int, line: str, stdin: str, sentence: str, tmp_path: Path
) -> None:
    error = error_of(line, tmp_path, code, stdin)
    assert sentence in error
    assert "bug" not in error


@pytest.mark.parametrize(
    "line", ["serve --model ./never/looked/at", "mcp browser --browser local:examples/documents --http"]
)
def test_a_port_in_use_is_named_before_anything_is_loaded(line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(*line.split(), "--port", str(port))
    advice = "Choose another with --port (make serve PORT=8001), or --port 0 for a free one."
    assert error == f"Port {port} on 127.0.0.1 is in use. {advice}\n"


def test_a_store_that_cannot_be_opened_is_reported_before_the_model_is_loaded(tmp_path: Path) -> None:
    error = refused(*NEVER.split(), "--store", f"sqlite:{tmp_path}/none/store.db")
    assert error == f"The store {tmp_path}/none/store.db cannot be opened: No such file or directory.\n"


def test_docker_that_is_missing_is_reported_at_the_start(tmp_path: Path) -> None:
    error = refused(*NEVER.split(), "--python", "docker", env={"PATH": str(tmp_path)})
    assert error.startswith("--python docker cannot be used here. The python tool's docker sandbox needs")
    assert "--python off" in error


def test_a_context_in_which_nothing_can_be_answered_is_refused(tmp_path: Path) -> None:
    error = refused(*NEVER.split(), "--context", "5")  # before the model is loaded
    assert error.startswith("A context of 5 tokens is too short to answer anything: the system ")
    assert f"Give --context {least_context(Settings())} or more" in error
    (tmp_path / "server.toml").write_text(f'identity = "{"So be it. " * 40_000}"\n', encoding="utf-8")
    flags = ("--config", str(tmp_path / "server.toml"), "--port", "0")
    error = refused("serve", script(tmp_path, ANSWER), *flags)
    assert error.startswith("A context of 131072 tokens is too short to answer anything")
    assert "the system message with its --identity" in error


def test_a_misspelt_variable_is_reported() -> None:
    done = run("version", env={"GPT_OSS_SERVER_MODLE": "x"})
    assert "GPT_OSS_SERVER_MODLE is not a setting. Did you mean GPT_OSS_SERVER_MODEL?" in done.stderr


PARSER = build_parser()


def led_to(line: str) -> str | None:
    """The line that the error proposes, without the program's name."""
    error = corrected(expanded(shlex.split(line)), PARSER.subcommands)
    return None if error is None else error.rpartition("\nTry: gpt-oss-server ")[2]


def settings_of(line: str) -> Settings:
    parsed, further = PARSER.parse_known_args(shlex.split(line))
    args = vars(parsed)
    settle_words(args, further)
    return read_configuration(args, {}).settings


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("sreve --prot 1", "serve --port 1"),
        ("openai/gpt-oss-20b", "serve openai/gpt-oss-20b"),
        ("serve --modle=tiny", "serve --model=tiny"),
        ("chat --no-reasonning", "chat --no-reasoning"),
        ("serve --xyz 3 tiny", "serve tiny"),
    ],
)
def test_the_error_leads_to_the_right_line(typed: str, right: str) -> None:
    assert led_to(typed) == right
    assert led_to(right) is None, "the proposed line needs no correction"
    PARSER.parse_args(shlex.split(right))


def test_a_line_that_works_needs_no_correction() -> None:
    lines = "serve|serve tiny --port 0|serve -mtiny|chat -bp|chat -- -tp|help serve|--version|render - --json"
    for line in (*lines.split("|"), "chat --instructions '-1 is not a flag'"):
        assert led_to(line) is None, line


CHATS = "chat tiny Hello there | chat tiny --effort low Hello there | chat --effort low -p tiny"


@pytest.mark.parametrize(
    ("name", "value", "lines"),
    [
        ("model", "openai/gpt-oss-20b", "serve openai/gpt-oss-20b"),
        ("model", "tiny", f"serve -m tiny | serve --port 1 tiny | serve tiny -m tiny | {CHATS}"),
        ("model", "random:20b", "bench random:20b"),
        ("context", 4096, "serve --max-model-len 4096 | serve -c 4096 | serve --ctx-size 4096"),
        ("max_concurrent", 3, "serve --max-num-seqs 3 | serve -np 3"),
        ("served_model_name", ("a", "b", "c"), "serve --alias a -a b --served-model-name c"),
        ("default_max_output_tokens", 5, "serve -n 5"),
        ("default_reasoning_effort", "xhigh", "serve --effort xhigh"),
        ("default_reasoning_budget", 7, "serve --reasoning-budget 7"),
        ("port", 1234, "serve -p 1234"),
    ],
)
def test_names_of_other_programs_set_the_same(name: str, value: object, lines: str) -> None:
    for line in lines.split(" | "):
        assert getattr(settings_of(line), name) == value, line
