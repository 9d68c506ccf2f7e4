"""Computes with torch on the CPU and the GPU, compiles a kernel with triton, and prints what happened.

It runs in a process of its own: a library that does not fit the machine may end its process.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

_SIZE = 64


def probe() -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    facts["cpu"] = _computes(torch, "cpu")
    facts["built_for_cuda"] = torch.version.cuda
    facts["gpu"] = _gpu(torch)
    if facts["gpu"].get("name") and not facts["gpu"].get("error"):
        facts["triton"] = _triton()
    return facts


def _computes(torch: Any, device: str) -> str | None:
    """None, or what went wrong with a product of matrices."""
    try:
        left = torch.arange(_SIZE * _SIZE, device=device).reshape(_SIZE, _SIZE) % 7
        found = (left.to(torch.bfloat16) @ left.to(torch.bfloat16).T).float().cpu()
        expected = (left.cpu().double() @ left.cpu().double().T).float()
        wrong = float((found - expected).abs().max() / expected.abs().max())
    except Exception as error:  # whatever a driver raises is the finding
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None if wrong < 0.02 else f"a product of matrices is wrong by {wrong:.0%}"


def _gpu(torch: Any) -> dict[str, Any]:
    try:
        torch.cuda.init()
        properties = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info(0)
    except Exception as error:  # as above
        return {"error": str(error).splitlines()[0] if str(error) else type(error).__name__}
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "free": free,
        "total": total,
        "error": _computes(torch, "cuda"),
    }


def _triton() -> dict[str, Any]:
    try:
        triton = import_module("triton")
    except ImportError as error:
        return {"missing": str(error)}
    try:
        from gpt_oss_server.cli.doctor.triton_kernel import doubled

        found = doubled(_SIZE)
    except Exception as error:  # a compiler that is missing, for example
        return {"version": triton.__version__, "error": f"{type(error).__name__}: {error}"}
    wrong = found != [2 * number for number in range(_SIZE)]
    return {"version": triton.__version__, "error": "its kernel computes wrongly" if wrong else None}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
