"""gpt-oss-server as an application of Ray Serve: replicas that have an engine each, and one store.

    pip install '.[ray,postgres]'
    cd examples
    serve run ray_serve:application model=openai/gpt-oss-20b gpus=1 replicas=1-8 store=postgres://user@host/db
    serve run ray_serve:application model=vllm:http://gpu-a:8000,http://gpu-b:8000 replicas=2 store=postgres://…

`replicas` is a number, or two with a hyphen between which Serve scales; `gpus` and `cpus` are what a replica
takes. All other arguments are settings of the server, which GPT_OSS_SERVER_… variables name too.
"""

import os
from typing import Any

from fastapi import FastAPI
from ray import serve

from gpt_oss_server.app import create_app
from gpt_oss_server.cli.server.start import check_start, load_engine
from gpt_oss_server.settings import OPTIONS, Settings, read_settings

AT_ONCE = 256  # requests of one replica; the engine queues what it cannot run
PER_REPLICA = 8  # requests at a time above which Serve adds a replica


@serve.deployment(
    name="gpt-oss-server",
    max_ongoing_requests=AT_ONCE,
    health_check_period_s=10,
    health_check_timeout_s=30,
    graceful_shutdown_wait_loop_s=2,
    graceful_shutdown_timeout_s=60,  # for streams that run, before a replica ends
)
@serve.ingress()
class Replica:
    """One server: Ray's proxy takes the connections, and passes each request to a replica."""

    def __init__(self, settings: Settings) -> None:
        self.server = create_app(load_engine(settings), settings)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self.server

    def check_health(self) -> None:
        """Serve replaces a replica whose engine cannot generate."""
        if (problem := self.server.state.health.problem) is not None:
            raise RuntimeError(problem)


def application(arguments: dict[str, Any]) -> serve.Application:
    """What `serve run` and `serve deploy` call, with the words after the name or with `args` of a file."""
    given = {name: str(value) for name, value in arguments.items()}
    least, _, most = given.pop("replicas", "2").partition("-")
    resources = {"num_cpus": float(given.pop("cpus", "1")), "num_gpus": float(given.pop("gpus", "0"))}
    settings = _settings(given)
    if int(most or least) > 1 and not settings.store.startswith("postgres"):
        raise SystemExit("Several replicas need one store: add store=postgres://user@host/database.")
    if not most:
        scale: dict[str, Any] = {"num_replicas": int(least)}
    else:
        scale = {
            "num_replicas": "auto",
            "autoscaling_config": {
                "min_replicas": int(least),
                "max_replicas": int(most),
                "target_ongoing_requests": PER_REPLICA,
                "upscale_delay_s": 15,
                "downscale_delay_s": 600,  # a model takes minutes to load
            },
        }
    return Replica.options(ray_actor_options=resources, **scale).bind(settings)


def _settings(given: dict[str, str]) -> Settings:
    """Arguments count like variables. What cannot work is reported here, before a replica starts."""
    if unknown := given.keys() - {option.name for option in OPTIONS}:
        raise SystemExit(f"{min(unknown)} is no setting: docs/settings.md has the names, without dashes.")
    names = {f"GPT_OSS_SERVER_{name.upper()}": value for name, value in given.items()}
    settings = read_settings({}, os.environ | names)
    check_start(settings)
    return settings
