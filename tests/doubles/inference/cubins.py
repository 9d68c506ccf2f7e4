"""Reads the machine code of compiled kernels with Triton's own copies of NVIDIA's tools."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import tempfile
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import triton

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
