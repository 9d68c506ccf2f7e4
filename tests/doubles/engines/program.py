"""A program that is started as llama-server is, with its double's wire, and that fails on demand."""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from inference.remote import loading
from tests.doubles.engines.llama_double import LlamaDouble

ROOT = Path(__file__).resolve().parents[3]


def write_program(folder: Path) -> str:
    """The path of an executable file."""
    path = folder / "llama-server"
    words = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    path.write_text(f"{words}from tests.doubles.engines.program import main\nmain()\n")
    path.chmod(0o755)
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("-c", type=int)
    parser.add_argument("-np", type=int)
    parser.add_argument("--prints", default="")
    parser.add_argument("--ends", action="store_true", help="before it serves")
    parser.add_argument("--ends-if", type=Path, help="the same, while this file exists")
    parser.add_argument("--hangs", action="store_true", help="before it serves")
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--pids", type=Path, help="gets the ids of this process and of a child of it")
    args, _ = parser.parse_known_args()
    if args.pids is not None:
        child = subprocess.Popen(["sleep", "1000"])
        args.pids.write_text(f"{os.getpid()} {child.pid}")
    sys.stdout.write(args.prints.replace("|", "\n") + "\n")
    sys.stdout.flush()
    if args.ends or (args.ends_if and args.ends_if.exists()):
        sys.exit(1)
    if args.hangs:
        time.sleep(1000)
    asyncio.run(serve(args.port, args.pace, args.c // args.np))


async def serve(port: int, pace: float, context: int) -> None:
    double = KeyedDouble(context=context)
    double.pace = pace
    double.port = port
    async with double:
        await asyncio.Event().wait()


class KeyedDouble(LlamaDouble):
    """It needs the key of its variable, as the real one does."""

    def answer(self, path: str, body: object) -> object:
        if path == "/health":
            return {"status": "ok"}
        if path == "/tokenize":  # what the double would, a second later
            return {"tokens": loading._PROBE_IDS}
        assert self.headers[-1].get("authorization") == f"bearer {os.environ['LLAMA_API_KEY']}"
        return super().answer(path, body)
