"""Marks every test of this folder as an attack, and prints the figures of all attacks."""

from pathlib import Path

import pytest

from tests.doubles.attacked import FIGURES

_HERE = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.attacks)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("attacks: wait of /health, memory; wait before, rate of a stream beside")
    for attack, probe in FIGURES:
        memory = probe.memory / 2**20
        line = f"{attack:60} {probe.longest * 1000:7.0f} ms {memory:7.0f} MiB"
        if probe.before is not None and probe.rate is not None:
            line += f" {probe.before * 1000:7.0f} ms {probe.rate:7.0%}"
        terminalreporter.write_line(line)
