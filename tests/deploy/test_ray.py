"""The server on a real Ray Serve: two replicas with engines of their own, and one Postgres."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import openai
import pytest
from openai.types.responses import Response

from tests.doubles.postgres import running_postgres
from tests.doubles.server_process import free_port

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("RAY_FOLDER", ROOT / ".venv" / "ray"))
PYTHON = FOLDER / "bin" / "python"
READY_SECONDS = 600
Found = TypeVar("Found")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"Ray is not installed in {FOLDER}: make ray"),
]
# A busy machine starts Ray's processes slowly, and they take each other for dead.
_PATIENT = {
    "RAY_raylet_start_wait_time_s": "60",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_health_check_failure_threshold": "20",
}


@dataclass(frozen=True)
class Cluster:
    url: str
    mark: str  # in the environment of all its processes
    client: openai.OpenAI

    def replicas(self) -> set[int]:
        return {int(entry.name) for entry in Path("/proc").iterdir() if self._is_replica(entry)}

    def await_replicas(self, count: int, without: set[int]) -> set[int]:
        """The processes, once `count` of them run, not counting those that were killed."""
        return _until(lambda: found if len(found := self.replicas() - without) == count else None)

    def _is_replica(self, entry: Path) -> bool:
        if not entry.name.isdigit():
            return False
        try:
            title, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:  # it has ended
            return False
        return title.startswith(b"ray::ServeReplica") and self.mark.encode() in variables


def _until(look: Callable[[], Found | None], seconds: float = READY_SECONDS) -> Found:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(0.2)
    raise AssertionError(f"It did not happen within {seconds:g} s.")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    port, mark, home = free_port(), uuid.uuid4().hex, tmp_path_factory.mktemp("home")
    own = {"HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "TEST_MARK": mark}
    # Ray's processes import for long where nothing compiled is kept.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), str(ROOT)])}
    with running_postgres() as postgres, (home / "log").open("wb") as log:
        store = f"store={postgres.new_database()}"
        arguments = [str(port), "model=tiny", "replicas=2", store, "background_lease=5"]
        process = subprocess.Popen(
            [PYTHON, str(ROOT / "tests" / "deploy" / "ray_cluster.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**inherited, **_PATIENT, **own, **paths},
        )
        try:
            _until(lambda: _serves(process, home / "log"))
            url = f"http://127.0.0.1:{port}"
            with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=8, timeout=120) as client:
                yield Cluster(url, mark, client)
        finally:
            process.communicate(timeout=120)


def _serves(process: subprocess.Popen[bytes], log: Path) -> bool | None:
    text = log.read_text(errors="replace")
    assert process.poll() is None, text[-8000:]
    return True if "serving" in text.splitlines() else None


def kill(cluster: Cluster, replica: int) -> set[int]:
    """Kills one of two replicas, and returns those that serve afterwards: the other one, and a new one."""
    os.kill(replica, signal.SIGKILL)
    _until(lambda: True if replica not in cluster.replicas() else None)
    return cluster.await_replicas(2, {replica})


def answered(cluster: Cluster, words: str, before: Response | None = None) -> Response:
    previous = None if before is None else before.id
    answer = cluster.client.responses.create(
        model="tiny", input=words, previous_response_id=previous, temperature=0, max_output_tokens=200
    )
    assert answer.status in ("completed", "incomplete")
    return answer


def test_the_application_is_healthy(cluster: Cluster) -> None:
    assert httpx.get(f"{cluster.url}/ready", timeout=30).json() == {"status": "ready", "model": "tiny"}
    assert len(cluster.await_replicas(2, set())) == 2


def test_a_stream_arrives_in_pieces_through_rays_proxy(cluster: Cluster) -> None:
    body = {"input": "Who are you?", "stream": True, "temperature": 0}
    with httpx.stream("POST", f"{cluster.url}/v1/responses", json=body, timeout=120) as answer:
        pieces = [piece for piece in answer.iter_raw() if piece]
    assert len(pieces) > 3
    assert b"response.completed" in b"".join(pieces)


def test_a_client_that_leaves_ends_its_generation(cluster: Cluster) -> None:
    body = {"input": "Count to a thousand.", "stream": True, "max_output_tokens": 4000}
    with httpx.stream("POST", f"{cluster.url}/v1/responses", json=body, timeout=120) as answer:
        next(answer.iter_raw())

    def idle() -> bool | None:
        engines = [httpx.get(f"{cluster.url}/health", timeout=30).json()["counters"] for _ in range(8)]
        return True if all(each["engine"]["running"] == 0 for each in engines) else None

    _until(idle, 60)


def test_a_conversation_outlives_both_replicas_that_began_it(cluster: Cluster) -> None:
    first = answered(cluster, "My name is Ada.")
    began = cluster.await_replicas(2, set())
    one, other = began
    kill(cluster, one)
    second = answered(cluster, "What can you do?", first)
    kill(cluster, other)
    assert not began & cluster.replicas()
    third, alone = answered(cluster, "And what else?", second), answered(cluster, "And what else?")
    assert third.usage is not None
    assert alone.usage is not None
    assert third.usage.input_tokens > alone.usage.input_tokens + 20
    assert cluster.client.responses.retrieve(first.id).output_text == first.output_text


def test_background_responses_outlive_their_replica(cluster: Cluster) -> None:
    client = cluster.client
    begun = [
        client.responses.create(model="tiny", input=f"Say {number}.", background=True, temperature=0)
        for number in range(6)
    ]
    kill(cluster, min(cluster.await_replicas(2, set())))

    def ended() -> list[str] | None:
        with suppress(openai.APIConnectionError, openai.InternalServerError):
            states = [str(client.responses.retrieve(each.id).status) for each in begun]
            return None if {"queued", "in_progress"} & set(states) else states
        return None

    assert set(_until(ended, 240)) <= {"completed", "incomplete"}
