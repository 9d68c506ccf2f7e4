"""A kernel's channel ends while it is read, in a process of its own, because that could abort the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

READER = """
import sys
import zmq
from tools.python.kernel import attach

address, kind = sys.argv[1:]
theirs, ours = zmq.Context(), zmq.Context()
types = {"iopub": (zmq.PUB, zmq.SUB), "shell": (zmq.ROUTER, zmq.DEALER)}
for number in range(20):
    sender, reader = theirs.socket(types[kind][0]), ours.socket(types[kind][1])
    sender.setsockopt(zmq.SNDHWM, 1000)
    sender.bind(f"{address}{number}")
    attach(reader, f"{address}{number}")
    reader.setsockopt(zmq.RCVTIMEO, 2000)
    if kind == "iopub":
        reader.setsockopt(zmq.SUBSCRIBE, b"")
    while not reader.poll(20):  # a subscription takes a moment, as a request does
        if kind == "shell":
            reader.send(b"hello")
            to, _ = sender.recv_multipart()
            sender.send_multipart([to, b"hello"])
        else:
            sender.send(b"hello")
    head = [to] if kind == "shell" else []
    for _ in range(300):
        sender.send_multipart([*head, *[b"part"] * 7])
    whole = 0
    try:
        while True:
            frames = reader.recv_multipart()
            assert frames in ([b"hello"], [b"part"] * 7), frames
            whole += 1
            if whole == 5:
                reader.setsockopt(zmq.RCVTIMEO, 50)
                sender.close(0)
    except zmq.Again:
        assert whole >= 5
    reader.close(0)
"""


@pytest.mark.parametrize("kind", ["iopub", "shell"])
def test_a_channel_that_ends_amid_messages_leaves_whole_ones_and_the_process(
    tmp_path: Path, kind: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READER, f"ipc://{tmp_path}/s", kind],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
