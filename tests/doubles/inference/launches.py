"""Compiles every kernel for an H100, as the models launch it, on a machine without one.

The ops run on tensors without memory. Launches are recorded, not executed, with the arguments that determine
their machine code. Run as a program, it prints one line of JSON for each; `--ends` restricts it to the first
and the last launch of each kernel, other words to these cases. Its process must not interpret kernels.
"""

from __future__ import annotations

import collections
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

HOPPER = GPUTarget("cuda", 90, 32)
OPTIONS = ("num_warps", "num_stages", "launch_pdl")
TYPES = {
    torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64", torch.uint8: "u8",
    torch.int32: "i32", torch.int64: "i64", torch.float8_e4m3fn: "fp8e4nv",
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One specialisation of a kernel."""

    case: str
    kernel: JITFunction[Any]
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[str, ...]
    options: tuple[tuple[str, int], ...]


class Notes:
    """Records launches in place of running them."""

    def __init__(self) -> None:
        self.case = ""
        self.launches: dict[Launch, None] = {}

    def __enter__(self) -> Notes:
        self._run = JITFunction.run
        notes = self

        def run(kernel: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
            assert all(size > 0 for size in grid), f"{kernel.fn.__name__} of {notes.case}: grid {grid}"
            notes.launches[noted(notes.case, kernel, args, kwargs)] = None

        JITFunction.run = run  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        JITFunction.run = self._run  # type: ignore[method-assign]


def noted(case: str, kernel: JITFunction[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    options = tuple((name, kwargs.pop(name)) for name in OPTIONS if name in kwargs)
    given = dict(zip(kernel.arg_names, args, strict=False)) | kwargs
    assert given.keys() == set(kernel.arg_names), (
        f"{kernel.fn.__name__}: {given.keys() ^ set(kernel.arg_names)}"
    )
    declared = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    signature, constants, aligned = {}, {}, []
    for name in kernel.arg_names:
        value = given[name]
        if name in declared or value is None or (isinstance(value, int) and value == 1):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[name] = f"*{TYPES[value.dtype]}"
            if value.storage_offset() * value.itemsize % 16 == 0:
                aligned.append(name)
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0:
                aligned.append(name)
        else:
            signature[name] = "fp32"
    return Launch(
        case.partition(" ")[0],
        kernel,
        tuple(signature.items()),
        tuple(constants.items()),
        tuple(aligned),
        options,
    )


def compiled(launch: Launch) -> dict[str, Any]:
    """The launch's registers, shared memory and instruction counts."""
    names = launch.kernel.arg_names
    source = ASTSource(
        launch.kernel,
        dict(launch.signature),
        {(names.index(name),): value for name, value in launch.constants},
        {(names.index(name),): [["tt.divisibility", 16]] for name in launch.aligned},
    )
    binary = triton.compile(source, target=HOPPER, options=dict(launch.options))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        listing = disassembled(file.name)
    code = [
        (int(place, 16), name, rest)
        for place, name, rest in re.findall(
            r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]+)(.*)", listing, re.M
        )
    ]
    counts = collections.Counter(name for _, name, _ in code)
    registers = re.search(r"REG:(\d+)", listing)
    assert counts, f"no code was found in {listing[:500]}"
    assert registers, f"no registers were found in {listing[:500]}"
    return {
        "kernel": f"{launch.kernel.fn.__module__.rpartition('.')[2]}.{launch.kernel.fn.__name__}",
        "constants": {name: value for name, value in launch.constants if name.isupper()},
        "registers": int(registers[1]),
        "shared": binary.metadata.shared,
        "counts": dict(counts),
        "loop": dict(longest_loop(code)),
    }


def longest_loop(code: list[tuple[int, str, str]]) -> collections.Counter[str]:
    """Counts the instructions of the longest loop: from a backward branch's target to the branch."""
    loops = [collections.Counter[str]()]
    for end, name, rest in code:
        target = re.search(r"0x([0-9a-f]+)", rest) if name == "BRA" else None
        if target and int(target[1], 16) < end:
            start = int(target[1], 16)
            loops.append(collections.Counter(name for place, name, _ in code if start <= place <= end))
    return max(loops, key=lambda counts: counts.total())


def disassembled(path: str) -> str:
    """The use of registers and the code. Each call costs half a second, however short the code is."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    done = subprocess.run(
        [str(tool), "-res-usage", "-sass", path], capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def main() -> None:
    from tests.doubles.inference.cases import every_case

    with Notes() as notes:
        for case in every_case():
            notes.case = case.name
            case.run()
    ends, only = "--ends" in sys.argv, [word for word in sys.argv[1:] if word != "--ends"]
    launches = ends_of(notes.launches) if ends else notes.launches
    made: dict[Launch, dict[str, Any]] = {}
    for launch in chosen(launches, only):
        alike = replace(launch, case="")  # several cases launch the same code
        if alike not in made:
            made[alike] = compiled(alike)
        sys.stdout.write(json.dumps({"case": launch.case, **made[alike]}) + "\n")


def ends_of(launches: Iterable[Launch]) -> list[Launch]:
    """Of each kernel with the same code for FP8 or bf16, the first and the last launch."""
    first: dict[object, Launch] = {}
    last: dict[object, Launch] = {}
    for launch in launches:
        key = (launch.kernel, launch.case.startswith(("fp8_", "scaled_")))
        first.setdefault(key, launch)
        last[key] = launch
    return list(dict.fromkeys([*first.values(), *last.values()]))


def chosen(launches: Iterable[Launch], only: list[str]) -> Iterator[Launch]:
    return (launch for launch in launches if not only or launch.case in only)


if __name__ == "__main__":
    main()
