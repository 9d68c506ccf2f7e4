"""Compiles every kernel for an H100, as the models launch it, on a machine without one.

The ops run on tensors without memory. Launches are recorded, not executed, with the arguments that determine
their machine code. Run as a program, it prints one line of JSON for each; `--largest` restricts it to
the last launch of each kernel, other words to these cases. Its process must not interpret kernels.
"""

from __future__ import annotations

import collections
import itertools
import json
import re
import struct
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

HOPPER = GPUTarget("cuda", 90, 32)
OPTIONS = ("num_warps", "num_stages", "launch_pdl")
TYPES = {
    torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64", torch.uint8: "u8",
    torch.int32: "i32", torch.int64: "i64", torch.float8_e4m3fn: "fp8e4nv",
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    case: str
    kernel: JITFunction[Any]
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[str, ...]
    options: tuple[tuple[str, int], ...]


class Notes:
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
    assert not (wrong := given.keys() ^ set(kernel.arg_names)), f"{kernel.fn.__name__}: {wrong}"
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
    tables = tuple(signature.items()), tuple(constants.items())
    return Launch(case.partition(" ")[0], kernel, *tables, tuple(aligned), options)


def compiled(launch: Launch) -> CompiledKernel:
    names = launch.kernel.arg_names
    source = ASTSource(
        launch.kernel,
        dict(launch.signature),
        {(names.index(name),): value for name, value in launch.constants},
        {(names.index(name),): [["tt.divisibility", 16]] for name in launch.aligned},
    )
    return triton.compile(source, target=HOPPER, options=dict(launch.options))


def described(launch: Launch, binary: CompiledKernel, code: list[Instruction]) -> dict[str, Any]:
    assert code
    return {
        "kernel": f"{launch.kernel.fn.__module__.rpartition('.')[2]}.{launch.kernel.fn.__name__}",
        "constants": {name: value for name, value in launch.constants if name.isupper()},
        "registers": registers_of(binary.asm["cubin"]),
        "shared": binary.metadata.shared,
        "counts": dict(collections.Counter(each.name for each in code)),
        "loop": dict(longest_loop(code)),
    }


def longest_loop(code: list[Instruction]) -> collections.Counter[str]:
    """Counts the instructions of the longest loop: from a backward branch's target to the branch."""
    loops = (
        [each.name for each in code if end.target <= each.place <= end.place]
        for end in code
        if end.target is not None and end.target < end.place
    )
    return collections.Counter(max(loops, key=len, default=[]))


def main() -> None:
    from tests.doubles.inference.cases import every_case

    with Notes() as notes:
        for case in every_case():
            notes.case = case.name
            case.run()
    largest, only = "--largest" in sys.argv, [word for word in sys.argv[1:] if word != "--largest"]
    noted = largest_of(notes.launches) if largest else notes.launches
    launches = [launch for launch in noted if not only or launch.case in only]
    binaries = {alike: compiled(alike) for alike in map(without_case, launches)}
    codes = instructions_of(binary.asm["cubin"] for binary in binaries.values())
    made = {
        alike: described(alike, binary, code)
        for (alike, binary), code in zip(binaries.items(), codes, strict=True)
    }
    for launch in launches:
        sys.stdout.write(json.dumps({"case": launch.case, **made[without_case(launch)]}) + "\n")


def without_case(launch: Launch) -> Launch:
    """Several cases launch the same code."""
    return replace(launch, case="")


def largest_of(launches: Iterable[Launch]) -> list[Launch]:
    """Of each kernel, the last launch for bf16, FP8 keys and FP8 weights, with and without shared columns."""
    last: dict[object, Launch] = {}
    for launch in launches:
        kind = next((kind for kind in ("fp8_", "scaled_") if launch.case.startswith(kind)), "bf16")
        last[launch.kernel, kind, dict(launch.constants).get("SHARERS", 0) > 0] = launch
    return list(last.values())


TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# ELF, 64 bits: the file's header as far as the number of sections, and a section's header.
FILE, SECTION = struct.Struct("<40xQ10xHH"), struct.Struct("<IIQQQQIIQQ")
EXECUTABLE = 0x4
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]+)(.*)", re.M)


@dataclass(frozen=True)
class Instruction:
    place: int
    name: str
    target: int | None
    """Where a branch goes."""


def registers_of(cubin: bytes) -> int:
    usage = run("cuobjdump", "-res-usage", content=cubin)
    found = re.search(r"REG:(\d+)", usage)
    assert found, f"no registers were found in {usage[:500]}"
    return int(found[1])


def instructions_of(cubins: Iterable[bytes]) -> list[list[Instruction]]:
    """The disassembler takes half a second to begin, however short the code is: it reads all code at once."""
    codes = [code_of(cubin) for cubin in cubins]
    listing = run("nvdisasm", "--binary", "SM90a", content=b"".join(codes))
    instructions = [instruction(*found.groups()) for found in INSTRUCTION.finditer(listing)]
    ends = itertools.accumulate(len(code) for code in codes)
    starts = [0, *(bisect_left(instructions, end, key=attrgetter("place")) for end in ends)]
    return [instructions[start:end] for start, end in itertools.pairwise(starts)]


def code_of(cubin: bytes) -> bytes:
    sections, size, count = FILE.unpack_from(cubin)
    headers = (SECTION.unpack_from(cubin, sections + size * number) for number in range(count))
    ((offset, length),) = [header[4:6] for header in headers if header[2] & EXECUTABLE]
    code = cubin[offset : offset + length]
    assert code
    return code


def instruction(place: str, name: str, rest: str) -> Instruction:
    target = re.search(r"0x([0-9a-f]+)", rest) if name == "BRA" else None
    return Instruction(int(place, 16), name, int(target[1], 16) if target else None)


def run(tool: str, *options: str, content: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        command = [str(TOOLS / tool), *options, file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
