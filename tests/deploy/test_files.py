"""The shipped files name settings, paths and extras that exist: no change of the server outdates them."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpt_oss_server.settings import OPTIONS
from tests.doubles.commands import ANSWER, script
from tests.doubles.ops.certificates import write_certificate
from tests.doubles.server_process import free_port, serving

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
VARIABLES = {option.variable for option in OPTIONS}
SECRETS = {option.variable for option in OPTIONS if option.secret != "no"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
USER = 10001


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def compose() -> Any:
    return yaml.safe_load(read(DEPLOY / "compose.yaml"))


def chart(name: str) -> Any:
    return yaml.safe_load(read(DEPLOY / "helm" / "gpt-oss-server" / name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\bGPT_OSS_SERVER_[A-Z_]+\b", read(path)))
    unknown = {name for name in named - VARIABLES if name.removesuffix("_FILE") not in SECRETS}
    assert not unknown, f"{path.name}: {sorted(unknown)}"


def test_every_flag_in_the_page_on_operations_exists() -> None:
    page = read(ROOT / "docs" / "operations.md")
    commands = read(ROOT / "docs" / "cli.md")
    others = re.sub(r"```[\s\S]*?```", "", page)  # commands of other programs stand in blocks
    for flag in sorted(set(re.findall(r"`(--[a-z-]+)", others))):
        assert flag in commands, f"docs/operations.md names {flag}"


def test_every_yaml_file_can_be_read() -> None:
    paths = [path for path in FILES if path.suffix in (".yaml", ".yml") and "templates" not in path.parts]
    assert all(isinstance(yaml.safe_load(read(path)), dict) for path in paths)


def test_the_image_is_built_from_what_exists() -> None:
    kept = re.findall(r"^!(\S+)", read(ROOT / ".dockerignore"), re.MULTILINE)
    assert {"gpt_oss_server", "inference", "tools", "pyproject.toml", "constraints.txt"} <= set(kept)
    for name in kept:
        assert (ROOT / name).exists(), name
    dockerfile = read(DEPLOY / "docker" / "Dockerfile")
    assert f"USER {USER}:{USER}" in dockerfile
    for line in re.findall(r"extras=\"?([a-z${},]+)", dockerfile):
        extras = set(line.replace("${extras}", "").split(",")) - {""}
        assert extras <= set(PROJECT["optional-dependencies"]), line


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_health_check_of_the_image_reaches_the_server(encrypted: bool, tmp_path: Path) -> None:
    """The very command of the Dockerfile, in the environment that the container would have."""
    dockerfile = read(DEPLOY / "docker" / "Dockerfile")
    [check] = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", dockerfile, re.MULTILINE)
    command = [sys.executable, *json.loads(check)[1:]]
    settings = {"GPT_OSS_SERVER_PORT": str(free_port())}
    if encrypted:
        certificate, key = write_certificate(tmp_path, "server", hosts=("localhost",))
        settings |= {"GPT_OSS_SERVER_TLS_CERT": str(certificate), "GPT_OSS_SERVER_TLS_KEY": str(key)}
    environment = {**os.environ, **settings}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 1, "nothing listens"
    port = settings["GPT_OSS_SERVER_PORT"]
    with serving("--model", script(tmp_path, ANSWER), "--port", port, env=settings):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_charts_version_is_the_servers() -> None:
    from gpt_oss_server import __version__

    assert chart("Chart.yaml")["appVersion"] == __version__


def test_the_containers_of_compose_reach_no_more_than_they_need() -> None:
    services = compose()["services"]
    assert services["postgres"]["networks"] == services["prometheus"]["networks"] == ["back"]
    assert compose()["networks"]["back"]["internal"] is True
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert services["server"]["cap_drop"] == ["ALL"]


def test_the_files_that_compose_mounts_exist() -> None:
    for service in compose()["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert not source.startswith("./") or (DEPLOY / source).exists(), volume
    security = compose()["services"]["server"]["security_opt"]
    profile = next(option for option in security if option.startswith("seccomp:"))
    assert (DEPLOY / profile.removeprefix("seccomp:")).is_file()


def test_a_container_is_given_longer_than_the_server_takes_to_stop() -> None:
    defaults = {option.name: option.default for option in OPTIONS}
    takes = defaults["drain_delay"] + defaults["shutdown_grace"]
    unit = read(DEPLOY / "systemd" / "gpt-oss-server.service")
    assert int(compose()["services"]["server"]["stop_grace_period"].removesuffix("s")) > takes
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0]) > takes
    values = chart("values.yaml")
    stops = values["drainDelaySeconds"] + values["shutdownGraceSeconds"]
    assert values["terminationGracePeriodSeconds"] > stops


def test_the_metric_of_the_autoscaler_is_the_servers() -> None:
    values = chart("values.yaml")
    prefix, _, name = values["autoscaling"]["waitingMetric"].partition("gpt_oss_")
    sources = "".join(read(path) for path in (ROOT / "gpt_oss_server" / "observe").rglob("*.py"))
    assert (prefix, f'"{name}"' in sources) == ("", True)
