"""Prints what torch and triton compute here. In a process of its own: a wrong library may end it."""

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
        facts["triton"] = _triton(torch)
    return facts


def _computes(torch: Any, device: str) -> str | None:
    """None, or what went wrong with a product of matrices."""
    try:
        left = torch.arange(_SIZE * _SIZE, device=device).reshape(_SIZE, _SIZE) % 7
        product = (left.to(torch.bfloat16) @ left.to(torch.bfloat16).T).float().cpu()
        expected = (left.cpu().double() @ left.cpu().double().T).float()
        wrong = float((product - expected).abs().max() / expected.abs().max())
    except Exception as error:  # whatever a driver raises is the finding
        return f"{type(error).__name__}: {_first_line(error)}"
    return None if wrong < 0.02 else f"a product of matrices is wrong by {wrong:.0%}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _gpu(torch: Any) -> dict[str, Any]:
    try:
        torch.cuda.init()
        properties = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info(0)
    except Exception as error:  # as above
        return {"error": _first_line(error) or type(error).__name__}
    capability = [properties.major, properties.minor]
    memory = {"free": free, "total": total}
    return {"name": properties.name, "capability": capability, **memory, "error": _computes(torch, "cuda")}


def _triton(torch: Any) -> dict[str, Any]:
    """The server's own first kernel, in float32, which every card computes."""
    try:
        version = import_module("triton").__version__
    except ImportError as error:
        return {"missing": str(error)}
    try:
        from inference.ops import fused, reference

        rows = torch.arange(_SIZE * _SIZE, device="cuda", dtype=torch.float32).reshape(_SIZE, _SIZE)
        norm = torch.ones(_SIZE, device="cuda")
        made, expected = (kind.rms_norm(rows, norm, 1e-5) for kind in (fused, reference))
        right = torch.allclose(made, expected, rtol=1e-3)
    except Exception as error:  # a compiler that is missing, for example
        return {"version": version, "error": f"{type(error).__name__}: {error}"}
    return {"version": version, "error": None if right else "its kernel computes wrongly"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
