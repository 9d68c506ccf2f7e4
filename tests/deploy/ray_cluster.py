"""Runs `examples/ray_serve.py` on a small Ray of its own until its input ends. Takes a port and arguments."""

import sys
import time

import ray
from ray import serve
from ray_serve import application

ATTEMPTS = 12


def start_ray() -> None:
    """Ray gives its own processes 15 s to start, whatever its settings: too short on a busy machine."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80 * 1024**2)
        except Exception as error:  # a plain one is what it raises
            ray.shutdown()
            print(f"Attempt {attempt} to start Ray failed: {error}", flush=True)  # noqa: T201
            time.sleep(2)
        else:
            return
    raise SystemExit("Ray did not start.")


def main() -> None:
    port, *words = sys.argv[1:]
    start_ray()
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    serve.run(application(dict(word.split("=", 1) for word in words)))
    print("serving", flush=True)  # noqa: T201
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
