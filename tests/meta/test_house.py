"""Rules of the code base: imports, sizes, names, and no trace of the machine that it was written on."""

import ast
import functools
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "cli.md", DOCS / "settings.md", *(DOCS / "reference").glob("*.md")}  # may be long
PACKAGES = ("gpt_oss_server", "inference", "tools")
MAY_IMPORT = {"gpt_oss_server": set(PACKAGES), "inference": {"inference"}, "tools": {"tools"}}
HEAVY = {"gpt_oss_server", "inference", "torch", "fastapi", "openai_harmony"}
HEAVY |= {"exa_py", "pypdf", "selectolax.parser"}
HTTP = {"fastapi", "starlette", "pydantic", "uvicorn"}
_MCP_TOOL = {"type": "mcp", "server_label": "x", "server_url": "https://user:secret@a.example/mcp"}
READ_MCP = f"from tools.mcp.endpoints import public_form; public_form({_MCP_TOOL})"


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def named(path: Path) -> tuple[list[str], list[str]]:
    """The full names of the modules that a file imports anywhere, and the strings that may name one."""
    imports, strings = [], []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the origin of a name"
            imports += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(".") > 1:
            strings.append(node.value)
    return imports, strings


def imported(path: Path) -> list[str]:
    return named(path)[0]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def room(path: Path) -> str:
    """The folder of a file; a file at the top of a package is a separate room."""
    inside = path.relative_to(ROOT)
    return str(inside if len(inside.parts) == 2 else inside.parent)


def top_room(path: Path) -> str:
    return path.relative_to(ROOT).parts[1].removesuffix(".py")


def arrows(paths: Iterable[Path], node: Callable[[Path], str]) -> dict[str, dict[str, Path]]:
    """For each node, the nodes that it imports or names in a string, each with one file that does so."""
    files = {module_name(path).removesuffix(".__init__"): path for path in paths}
    found: dict[str, dict[str, Path]] = {}
    for path in files.values():
        for name in itertools.chain(*named(path)):
            steps = name.split(".")
            prefixes = (".".join(steps[:end]) for end in range(len(steps), 0, -1))
            target = next((files[prefix] for prefix in prefixes if prefix in files), None)
            if target is not None and node(target) != node(path):
                found.setdefault(node(path), {}).setdefault(node(target), path)
    return found


def circle(found: dict[str, dict[str, Path]]) -> list[str]:
    """The imports of one circle, each with a file that contains it."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        nodes = error.args[1][::-1]
        return [f"{a} → {b} ({relative(found[a][b])})" for a, b in itertools.pairwise(nodes)]
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way_and_modules_open_with_a_docstring(package: str) -> None:
    foreign = {*PACKAGES, "tests", "examples", "docs"} - MAY_IMPORT[package]
    for path in sources(package):
        wrong = {name.partition(".")[0] for name in imported(path)} & foreign
        assert not wrong, f"{relative(path)} imports {wrong}"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not tree.body or ast.get_docstring(tree), f"{relative(path)} has no docstring"


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("node", [room, module_name], ids=["rooms", "modules"])
def test_imports_make_no_circle(package: str, node: Callable[[Path], str]) -> None:
    assert not circle(arrows(sources(package), node))


def test_top_rooms_import_only_those_above_them_in_the_table_of_architecture() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = page[page.index("| `gpt_oss_server/` |") :].partition("\n\n")[0].splitlines()[2:]
    cells = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows]
    level = {name: at for at, names in enumerate(cells) for name in names}
    files = sources("gpt_oss_server")
    found = arrows(files, top_room)
    assert set(level) == {top_room(path) for path in files} - {"__init__"}
    wrong = {
        f"{a} imports {b} ({relative(path)})"
        for a, targets in found.items()
        for b, path in targets.items()
        if b != "__init__" and level[b] >= level[a] and not (a == "__main__" and b == "cli")
    }
    assert not wrong


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_what_several_apis_need_stands_outside_of_each(api: str) -> None:
    for path in sources(f"gpt_oss_server/apis/{api}"):
        others = [name.split(".")[2] for name in imported(path) if name.startswith("gpt_oss_server.apis.")]
        assert set(others) <= {api}, f"{relative(path)} imports {others}"


@pytest.mark.parametrize(
    ("statement", "unloaded"),
    [
        ("import gpt_oss_server.app", {"torch", "transformers"}),
        ("import gpt_oss_server.cli.main", {"torch", "transformers"}),
        ("import gpt_oss_server.settings", {"torch", "transformers", "fastapi", "pydantic"}),
        ("from gpt_oss_server.cli.parser import build_parser; build_parser()", HTTP),
        ("import gpt_oss_server.constraints.turn_check", HTTP - {"pydantic"} | {"gpt_oss_server.http"}),
        ("import tools.browser", HEAVY),
        (f"import gpt_oss_server.app, gpt_oss_server.items.mcp; {READ_MCP}", {"mcp", "mcp_types"}),
    ],
    ids=["app", "command", "settings", "help", "turn check", "browser", "an MCP tool that is read"],
)
def test_importing_it_does_not_load(statement: str, unloaded: set[str]) -> None:
    check = f"import sys; {statement}; sys.exit(bool({unloaded} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0


def test_harmony_takes_nothing_of_inference() -> None:
    for path in sources("gpt_oss_server/harmony"):
        taken = [name for name in imported(path) if name.partition(".")[0] == "inference"]
        assert not taken, f"{relative(path)} imports {taken}"


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {
        relative(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in tracked_files()
        if (path.suffix in (".py", ".md") or path.name == "Makefile") and path not in GENERATED
    }
    assert not {path: count for path, count in lengths.items() if count > 400}


def test_no_folder_holds_more_than_20_files_of_its_own() -> None:
    held = Counter(relative(path.parent) for path in tracked_files() if path.suffix == ".py")
    assert not {folder: count for folder, count in held.items() if count > 20}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_longer_than_50_lines(package: str) -> None:
    device_code = ROOT / "inference" / "ops" / "kernels"  # a kernel is one function
    long = [
        f"{relative(path)}: {node.name}"
        for path in sources(package)
        if path.parent != device_code
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > 50
    ]
    assert not long


def test_no_line_names_the_machine_that_wrote_it() -> None:
    homes = r"/root/\w|/(?:home|Users|work|workspace)/\w+/"
    hosts = r"(?:--(?:extra-)?index-url|find-links|\b(?:10|192\.168|172\.16)\.\d+\.\d+)"
    found = re.compile(f"{homes}|{hosts}")
    texts = {".py", ".md", ".toml", ".txt", ".json", ""}
    lines = [
        f"{relative(path)}:{number}: {match[0]}"
        for path in tracked_files()
        if path.suffix in texts and not relative(path).startswith("test")
        if b"\0" not in path.read_bytes()[:4096]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := found.search(line))
    ]
    assert not lines


def test_constraints_pin_exact_versions_without_a_build() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", pin) for pin in pins)
    assert {"torch==2.13.0", "triton==3.7.1"} <= set(pins)
    assert pins == sorted(pins, key=str.lower)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-m", "gpt_oss_server", "version"], "another package named `tools`"),
        (["-c", "from gpt_oss_server.app import create_app"], "another package named `tools` first, at {}"),
    ],
    ids=["command", "app"],
)
def test_another_tools_package_is_an_explained_conflict(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert sentence.format(tmp_path) in done.stderr
    assert "No module named" not in done.stderr
    assert "Traceback" not in done.stderr or arguments[0] == "-c"
