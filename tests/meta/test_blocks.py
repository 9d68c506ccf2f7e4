"""Each code block of the documentation is valid, and is run by a test or states why it is not.

`tests/e2e/test_pages.py` runs those that need a server; a comment says why none does: `<!-- not run: … -->`.
"""

import configparser
import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpt_oss_server.cli.line.corrections import PROGRAM, corrected, expanded
from gpt_oss_server.cli.line.flags import settle_words
from gpt_oss_server.cli.parser import build_parser
from gpt_oss_server.settings import OPTIONS, read_configuration
from gpt_oss_server.settings.sources import variables_of
from tests.doubles.pages.blocks import ROOT, RUN_ELSEWHERE, SHELLS, Block, blocks, commands, words_of

BLOCKS = list(blocks())
VARIABLES = {name for option in OPTIONS for name in variables_of(option, OPTIONS)}
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
INSTALLED_BY_CLIENTS = re.compile(r"(pip|npm) install (-g )?[\w@/.,'\[\]=-]+(==|@)\d")  # see test_versions


def of(*languages: str, pages: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    found = [b for b in BLOCKS if b.language in languages and (not pages or b.page in pages)]
    assert found, f"no page has a block of {languages}"
    return pytest.mark.parametrize("block", found, ids=str)


def test_every_block_has_a_language_that_is_checked() -> None:
    checked = {"bash", "sh", "python", "json", "toml", "yaml", "ini", "js", "diff", "text"}
    assert {str(block): block.language for block in BLOCKS if block.language not in checked} == {}


def test_each_reason_is_of_a_block_that_would_run() -> None:
    needless = [str(b) for b in BLOCKS if b.reason and b.language not in (*SHELLS, "python", "js")]
    assert needless == []
    pages = {block.page for block in BLOCKS}
    comments = sum((ROOT / page).read_text("utf-8").count("<!-- not run:") for page in pages)
    assert comments == sum(b.reason is not None for b in BLOCKS), "a comment is not directly before a block"


@of("python")
def test_python_compiles(block: Block) -> None:
    compile(block.code, str(block), "exec")


@of("python")
def test_a_program_that_prints_shows_what_the_model_said(block: Block) -> None:
    """A name alone hides that a value is wrong."""
    printed = re.findall(r"\bprint\((.*)\)$", block.code, re.MULTILINE)
    assert not printed or any(not re.fullmatch(r"(\w+\.)*(type|name|id|status)", what) for what in printed)


@of("json", "toml", "yaml", "ini")
def test_data_can_be_parsed(block: Block) -> None:
    parse: dict[str, Callable[[str], object]] = {
        "json": json_values,
        "toml": tomllib.loads,
        "yaml": yaml.safe_load,
        "ini": lambda text: configparser.ConfigParser(interpolation=None).read_string(text),
    }
    parse[block.language](block.code)


def json_values(text: str) -> list[object]:
    """The values of a block: one, or one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, list[object]()
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(value)
    return found


@of("toml", pages=("docs/configuration.md", "docs/operations.md"))
def test_configurations_have_settings_with_valid_values(block: Block, tmp_path: Path) -> None:
    lines = block.code.splitlines()
    rows = [line for line in lines if "_file = " not in line]  # they name files to read
    (tmp_path / "server.toml").write_text("\n".join(rows), encoding="utf-8")
    read_configuration({"config": str(tmp_path / "server.toml")}, {})
    files = {line.split(" = ")[0].removesuffix("_file") for line in lines if "_file = " in line}
    assert files <= {name for option in OPTIONS for name in (option.name, option.name.removesuffix("_file"))}


@of(*SHELLS)
def test_shells_can_read_it(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@of(*SHELLS)
def test_every_command_is_typed_by_a_test(block: Block) -> None:
    for command in commands(block):
        variables, words = words_of(command)
        check_variables(variables, words)
        if words[0] == PROGRAM:
            check_program(words[1:])
        elif not is_run(block, command):
            assert block.reason, f"no test types `{command}`: add `<!-- not run: REASON -->` before the block"


def check_variables(variables: dict[str, str], words: list[str]) -> None:
    exported = [word.partition("=")[0] for word in words[1:]] if words[0] == "export" else []
    for name in (*variables, *exported):
        assert name in VARIABLES or not name.startswith("GPT_OSS_SERVER_"), f"{name} is no setting"


def check_program(words: list[str]) -> None:
    """The program accepts the command: its flags, and the values of its settings."""
    words = expanded(words[:-1] if words[-1:] == ["&"] else words)
    parser = build_parser(everything=True)
    assert (wrong := corrected(words, parser.subcommands)) is None, wrong
    given, further = parser.parse_known_args(words)
    settle_words(vars(given), further)
    read_configuration({name: value for name, value in vars(given).items() if name != "config"}, {})


def is_run(block: Block, command: str) -> bool:
    """Whether a test types the command, or checks what it installs."""
    if block.page in RUN_ELSEWHERE or command.startswith(("curl ", "openssl ")):
        return True
    if command.startswith("export GPT_OSS_SERVER_"):
        return True  # `check_variables` does
    if extra := re.fullmatch(r"pip install ['\"]?\.\[(\w+)\]['\"]?", command):
        return extra[1] in EXTRAS
    return block.page.startswith("docs/clients/") and INSTALLED_BY_CLIENTS.match(command) is not None


def test_the_tests_that_run_pages_exist() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8")
