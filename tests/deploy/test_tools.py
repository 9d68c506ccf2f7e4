"""The shipped files under the tools that read them: helm, hadolint, docker compose, systemd, Grafana's SDK.

`make deploy-test` runs it; the tests of tools that are missing are skipped.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "gpt-oss-server"
KUBERNETES = ("1.30", "1.33", "1.35")
EVERYTHING: dict[str, Any] = yaml.safe_load("""
{replicas: 3, postgres: {existingSecret: database}, apiKeys: {file: sk-one}, sandbox: {enabled: true},
autoscaling: {enabled: true, cpuPercent: 80}, hosts: [llm.example],
ingress: {enabled: true, className: nginx, tls: [{secretName: t, hosts: [llm.example]}]},
persistence: {enabled: true, accessModes: [ReadWriteMany], storageClass: fast},
networkPolicy: {enabled: true, from: [{podSelector: {}}]}, imagePullSecrets: [{name: registry}],
serviceMonitor: {enabled: true, labels: {release: prometheus}}, podAnnotations: {a: b}, podLabels: {c: d},
extraEnv: [{name: HF_TOKEN, value: hf}], extraVolumes: [{name: models, emptyDir: {}}],
extraVolumeMounts: [{name: models, mountPath: /models}], nodeSelector: {gpu: 'yes'},
tolerations: [{key: gpu, operator: Exists}], affinity: {podAntiAffinity: {}},
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
""")


def program(name: str) -> str:
    """The program, from the variable of its name (HELM=PATH) or the path. The test is skipped without it."""
    found = os.environ.get(name.upper().replace("-", "_")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, **more)


def template(values: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return run(program("helm"), "template", "test", str(CHART), "--values", str(path), "--namespace", "llm")


def rendered(values: dict[str, Any], folder: Path) -> str:
    done = template(values, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_kind(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(rendered(values, folder)) if each}


def test_each_field_of_the_dashboard_is_one_that_grafana_knows(tmp_path: Path) -> None:
    python = Path(program("kubernetes-validate")).with_name("python")  # the linters' own environment
    if run(str(python), "-c", "import grafana_foundation_sdk").returncode:
        pytest.skip("grafana-foundation-sdk is not installed")
    reader = str(Path(__file__).with_name("read_dashboard.py"))
    dashboard = ROOT / "deploy" / "grafana" / "dashboard.json"
    done = run(str(python), reader, str(dashboard))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    changed = json.loads(dashboard.read_text(encoding="utf-8"))
    next(panel for panel in changed["panels"] if panel["type"] == "timeseries")["options"]["legnd"] = {}
    (tmp_path / "changed.json").write_text(json.dumps(changed), encoding="utf-8")
    assert "options.legnd is unknown" in run(str(python), reader, str(tmp_path / "changed.json")).stdout


def test_the_chart_passes_helm_lint() -> None:
    done = run(program("helm"), "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
@pytest.mark.parametrize("version", KUBERNETES)
def test_the_objects_have_schemas_of_kubernetes(values: dict[str, Any], version: str, tmp_path: Path) -> None:
    objects = yaml.safe_load_all(rendered(values, tmp_path))
    known = [each for each in objects if each["kind"] != "ServiceMonitor"]
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(known), encoding="utf-8")
    done = run(program("kubernetes-validate"), "--strict", "--kubernetes-version", version, str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(known) == (9 if values else 4), [each["kind"] for each in known]


def test_the_chart_connects_its_parts(tmp_path: Path) -> None:
    objects = by_kind(EVERYTHING, tmp_path)
    pod = objects["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        spec = objects[kind]["spec"]
        wanted = (spec.get("selector") or spec.get("podSelector"))["matchLabels"]
        assert wanted.items() <= labels.items()
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    monitored = objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= objects["Service"]["metadata"]["labels"].items()
    assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == "http"
    scaled = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
    assert scaled == objects["Deployment"]["metadata"]["name"]
    assert "replicas" not in objects["Deployment"]["spec"]  # the autoscaler's
    container = pod["spec"]["containers"][0]
    environment = {each["name"]: each for each in container["env"]}
    store = environment["GPT_OSS_SERVER_STORE"]["valueFrom"]["secretKeyRef"]
    assert store == {"name": "database", "key": "url"}
    keys = next(each for each in pod["spec"]["volumes"] if each["name"] == "keys")
    assert keys["secret"]["secretName"] == objects["Secret"]["metadata"]["name"]
    mounted = next(each for each in container["volumeMounts"] if each["name"] == "keys")["mountPath"]
    assert environment["GPT_OSS_SERVER_API_KEY_FILE"]["value"] == f"{mounted}/keys"
    assert "test-gpt-oss-server.llm.svc" in environment["GPT_OSS_SERVER_ALLOW_HOST"]["value"].split(",")
    assert container["securityContext"]["procMount"] == "Unmasked"
    assert pod["spec"]["hostUsers"] is False


def test_the_chart_has_no_rights_by_default(tmp_path: Path) -> None:
    pod = by_kind({}, tmp_path)["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    assert pod["containers"][0]["securityContext"] == {**rights, "capabilities": {"drop": ["ALL"]}}


ONE_DISK = {"replicas": 2, "postgres": {"existingSecret": "d"}, "persistence": {"enabled": True}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replicas": 2}, "need a database"),
        ({"autoscaling": {"enabled": True}}, "need a database"),
        ({"terminationGracePeriodSeconds": 30}, "answers are cut off"),
        ({"ingress": {"enabled": True}}, "set hosts"),
        (ONE_DISK, "ReadWriteMany"),
    ],
)
def test_the_chart_refuses_what_cannot_work(values: dict[str, Any], words: str, tmp_path: Path) -> None:
    done = template(values, tmp_path)
    assert done.returncode != 0
    assert words in done.stderr


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = run(program("hadolint"), "deploy/docker/Dockerfile")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml")])
def test_docker_compose_reads_the_files(files: tuple[str, ...]) -> None:
    words = [word for name in files for word in ("--file", f"deploy/{name}")]
    secrets = ("POSTGRES_PASSWORD", "GPT_OSS_SERVER_API_KEY", "GRAFANA_PASSWORD")
    environment = {**os.environ, **dict.fromkeys(secrets, "secret")}
    compose = program("docker-compose")
    if run(compose, "version", "--short").stdout.startswith("1."):
        pytest.skip("docker-compose 1 does not know files without a version; install docker compose 2")
    done = run(compose, *words, "config", "--quiet", env=environment)
    assert done.returncode == 0, done.stderr
    without = {name: value for name, value in environment.items() if name not in secrets}
    done = run(compose, *words, "config", "--quiet", env=without)
    assert done.returncode != 0
    assert "put one into .env" in done.stderr


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """`verify` checks that the program exists too, so it gets one."""
    unit = (ROOT / "deploy" / "systemd" / "gpt-oss-server.service").read_text(encoding="utf-8")
    served = "/opt/gpt-oss-server/bin/gpt-oss-server"
    assert f"ExecStart={served} serve" in unit
    path = tmp_path / "gpt-oss-server.service"
    path.write_text(unit.replace(served, "/bin/true"), encoding="utf-8")
    analyze = program("systemd-analyze")
    done = run(analyze, "verify", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    done = run(analyze, "security", "--offline=yes", "--threshold=40", str(path))
    assert done.returncode == 0, done.stdout
