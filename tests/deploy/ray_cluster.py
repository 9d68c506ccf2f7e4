"""Runs `examples/ray_serve.py` on a small Ray of its own until its input ends. Takes a port and arguments."""

from __future__ import annotations

import sys

import ray
from ray import serve
from ray_serve import application

port, *words = sys.argv[1:]
ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80 * 1024**2, log_to_driver=True)
serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
serve.run(application(dict(word.split("=", 1) for word in words)))
print("serving", flush=True)  # noqa: T201
sys.stdin.read()
serve.shutdown()
ray.shutdown()
