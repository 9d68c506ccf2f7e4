"""The pages state the versions that `make clients` installs."""

import json
import re
from pathlib import Path

from tests.doubles.clients.running import ROOT

FOLDER = Path(__file__).resolve().parent
PAGES = ROOT / "docs" / "clients"
HELPERS = {"node", "ws", "zod"}  # what clients need, and no client


def installed() -> list[str]:
    """The clients as the commands of the pages name them, with their versions."""
    files = sorted((FOLDER / "environments").glob("*.txt"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    node = {name: version for name, version in package["dependencies"].items() if name not in HELPERS}
    return [line for line in lines if "==" in line] + [f"{name}@{version}" for name, version in node.items()]


def test_the_commands_of_the_pages_install_these_versions() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md")))
    missing = [each for each in installed() if each not in pages]
    assert missing == []


def test_the_table_has_every_version() -> None:
    table = (PAGES / "README.md").read_text(encoding="utf-8")
    # The providers of the AI SDK have numbers of their own, which only its page states.
    clients = [each for each in installed() if not each.startswith("@ai-sdk/")]
    assert sorted(each for each in clients if re.split("==|@", each)[-1] not in table) == []


def test_every_page_is_in_the_table() -> None:
    table = (PAGES / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in PAGES.glob("*.md") if path.name != "README.md"]
    assert sorted(name for name in pages if f"({name}" not in table) == []
