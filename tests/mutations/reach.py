"""Which functions does each test reach, and how long does it take?

Runs tests in a fork of this process, which has the libraries in memory and none of the product's modules.
"""

import ast
import builtins
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from resource import RLIMIT_DATA, setrlimit

import pytest

from tests.mutations.sample import spots_of

LONGEST_TEST = {signal.ITIMER_PROF: 30, signal.ITIMER_REAL: 120}  # seconds of the processor, and of the clock
MOST_MEMORY = 6 << 30
OPTIONS = ("-q", "--assert=plain", "--hypothesis-seed=0", "-p", "no:cacheprovider")
NOTE = "getattr(__import__('builtins'), '_reached', set())"  # servers in other processes have none

Reach = dict[str, tuple[float, list[str]]]  # for each test, its seconds, and the functions as `file name`


class Recorder:
    """What a fixture reaches counts for all tests of the file: the first one may have created it for them."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._reached: set[str] = set()
        self._fixtures: dict[str, set[str]] = {}
        self._tests: Reach = {}
        vars(builtins)["_reached"] = self._reached

    def pytest_runtest_logstart(self) -> None:
        self._reached.clear()
        self._began = time.process_time(), time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            spent, waited = time.process_time() - self._began[0], time.monotonic() - self._began[1]
            self._tests[report.nodeid] = (max(spent, waited / 2), sorted(self._reached))
        elif report.when == "setup":
            self._fixtures.setdefault(report.nodeid.split("::")[0], set()).update(self._reached)
        self._reached.clear()

    def pytest_sessionfinish(self) -> None:
        tests = {
            test: (seconds, sorted({*reached, *self._fixtures[test.split("::")[0]]}))
            for test, (seconds, reached) in self._tests.items()
        }
        self._out.write_text(json.dumps(tests), encoding="utf-8")


class Selected:
    """Runs these tests in their order, and notes the one under way. The kernel ends one that is too slow."""

    def __init__(self, tests: Sequence[str], under_way: Path) -> None:
        self._places = {test: place for place, test in enumerate(tests)}
        self._under_way = under_way

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._under_way.write_text(nodeid, encoding="utf-8")
        for timer, seconds in LONGEST_TEST.items():
            signal.setitimer(timer, seconds)


def run_forked(root: Path, checkout: Path, arguments: Sequence[str], plugin: Callable[[], object]) -> int:
    """The tests' status: an exit code of pytest times 256, or the signal that ended them."""
    if (child := os.fork()) == 0:
        os.setsid()
        os.chdir(root)
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
        setrlimit(RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        os.environ |= {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        sys.path[:] = [str(root), *(path for path in sys.path if Path(path).resolve() != checkout)]
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        os._exit(pytest.main([*OPTIONS, *arguments], plugins=[plugin()]))
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    os.killpg(child, signal.SIGKILL)  # what a killed test started
    _, status = os.waitpid(child, 0)
    assert status != pytest.ExitCode.NO_TESTS_COLLECTED << 8, arguments
    return status


def record_calls(root: Path, file: str) -> None:
    """Changes each function of the file to note that it was reached."""
    source = (root / file).read_text(encoding="utf-8")
    lines, spots, places = source.split("\n"), spots_of(root, file), {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
            at = min(part.lineno for part in (first, *getattr(first, "decorator_list", ()))) - 1
            if not lines[at][: first.col_offset].strip():  # else the whole function is one line
                places[at] = f"{' ' * first.col_offset}{NOTE}.add('{file} {spots[at].inside}')"
    for at in sorted(places, reverse=True):
        lines.insert(at, places[at])
    (root / file).write_text("\n".join(lines), encoding="utf-8")
