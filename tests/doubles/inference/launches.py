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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

from inference.config import SHAPES
from inference.drafting.head import DraftHead
from inference.local.cuda.guesser import MORE_ROWS, CudaGuesser, DraftShape
from inference.local.cuda.inputs import Tables
from inference.models.gpt_oss import GptOss
from inference.models.weights import Weights
from inference.ops import expert_kernels, fused
from inference.ops.packing import PackedRows
from inference.ops.pages import Pages
from inference.ops.sampling import Picking
from inference.ops.scaled import FP8, Rows, ScaledRows
from tests.doubles.inference.full_size import BLOCK, EPS, HEADS, HIDDEN, KV_HEADS, SIZE, VOCABULARY
from tests.doubles.inference.walking import head_shape, random_draft_weights

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
    from tests.doubles.inference.launches import every_case

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
    target: int | None  # where a branch goes


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


META, MOST, BLOCKS = torch.device("meta"), 4, 100


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], object]


def of(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


def every_case() -> Iterator[Case]:
    for tokens in (1, 8, 64):
        yield Case(f"qkv {tokens}", partial(run_qkv, tokens))
        yield Case(f"out {tokens}", partial(run_out, tokens))
    for tokens in (1, 2, 8, 32, 64, 128, 256):
        yield Case(f"scaled_qkv {tokens}", partial(run_qkv, tokens, fp8=True))
        yield Case(f"fp8_qkv {tokens}", partial(run_qkv, tokens, kept=FP8))
        yield Case(f"scaled_out {tokens}", partial(run_out, tokens, fp8=True))
        yield Case(f"scaled_head {tokens}", partial(run_head, tokens, fp8=True))
    for window, (prefix, kept) in itertools.product((None, 128), (("", torch.bfloat16), ("fp8_", FP8))):
        yield Case(f"{prefix}decode {window}", partial(run_attention, [1], window, kept))
        yield Case(f"{prefix}decode {window}", partial(run_attention, [1] * 64, window, kept))
        yield Case(f"{prefix}prefill {window}", partial(run_attention, [2048], window, kept))
        yield Case(f"{prefix}prefill {window}", partial(run_attention, [1, 1, 40], window, kept))
    for sequences in (1, 8, 64):
        yield Case(f"draft_head {sequences}", partial(run_guesses, sequences))
    for experts, tokens in ((32, 1), (32, 4), (32, 64), (32, 256), (32, 2048), (128, 1), (128, 8), (128, 64)):
        yield Case(f"experts {experts} {tokens}", partial(run_experts, tokens, experts))
    for rows in (1, 8):
        yield Case(f"head {rows}", partial(run_head, rows))
        yield Case(f"sample {rows}", partial(run_sample, rows, extras=rows == 8))


def pages_of(queries: list[int], window: int | None) -> Pages:
    return Pages(
        tables=of(len(queries), 2048, dtype=torch.int32),
        lengths=of(len(queries), dtype=torch.int32),
        starts=of(len(queries) + 1, dtype=torch.int32),
        slots=of(sum(queries), dtype=torch.int64),
        window=window,
        block_size=BLOCK,
        decodes=queries.count(1),
        longest=max(queries),
    )


def memory(kept: torch.dtype) -> Tensor:
    return of(KV_HEADS, 1000, BLOCK, SIZE, dtype=kept).permute(1, 2, 0, 3)


def rows_of(rows: int, columns: int, fp8: bool) -> Rows:
    if fp8:
        return ScaledRows(of(rows, columns, dtype=FP8), of(rows, dtype=torch.float32))
    return of(rows, columns)


def run_qkv(tokens: int, fp8: bool = False, kept: torch.dtype = torch.bfloat16) -> None:
    rows = (HEADS + 2 * KV_HEADS) * SIZE
    weight = rows_of(rows, HIDDEN, fp8)
    cos, sin = (of(tokens, SIZE, dtype=torch.float32) for _ in range(2))
    fused.qkv(
        of(tokens, HIDDEN), of(HIDDEN, dtype=torch.float32), EPS, weight, of(rows), cos, sin,
        memory(kept), memory(kept), pages_of([1] * tokens, None),
    )  # fmt: skip


def run_out(tokens: int, fp8: bool = False) -> None:
    weight = rows_of(HIDDEN, HEADS * SIZE, fp8)
    fused.project_out(of(tokens, HEADS * SIZE), weight, of(HIDDEN), of(tokens, HIDDEN))


def run_attention(queries: list[int], window: int | None, kept: torch.dtype) -> None:
    query, pages = of(sum(queries), HEADS, SIZE), pages_of(queries, window)
    fused.paged_attention(query, memory(kept), memory(kept), of(HEADS), pages)


def packed(experts: int, rows: int) -> PackedRows:
    fragments, tiles = -(-rows // 64) * 4, HIDDEN // 64
    words = of(experts, fragments, tiles, 32, 4, dtype=torch.int32)
    return PackedRows(words, of(experts, fragments, tiles, 8, dtype=torch.int32), rows, HIDDEN)


def run_experts(tokens: int, experts: int) -> None:
    mixture = expert_kernels.Mixture(
        packed(experts, 2 * HIDDEN), of(experts, 2 * HIDDEN), packed(experts, HIDDEN), of(experts, HIDDEN),
        limit=7.0, alpha=1.702,
    )  # fmt: skip
    norm = of(HIDDEN, dtype=torch.float32)
    fused.experts_block(of(tokens, HIDDEN), norm, EPS, of(experts, HIDDEN), of(experts), 4, mixture)


def run_head(rows: int, fp8: bool = False) -> None:
    head = rows_of(VOCABULARY, HIDDEN, fp8)
    norm = of(HIDDEN, dtype=torch.float32)
    fused.head_logits(of(rows, HIDDEN), norm, EPS, head.t() if isinstance(head, Tensor) else head)


def run_sample(rows: int, extras: bool) -> None:
    def floats(*shape: int) -> Tensor:
        return of(rows, *shape, dtype=torch.float32)

    seen = of(rows, dtype=torch.int32)
    masks = of(rows, VOCABULARY // 8, dtype=torch.uint8)
    more = (floats(VOCABULARY), seen, masks, seen) if extras else (None,) * 4
    picking = Picking(floats(), seen, floats(), floats(), of(rows, dtype=torch.float64), *more)
    fused.sample(floats(VOCABULARY), picking)


class OnTheDevice(TorchDispatchMode):
    """No recording of a draft head's work can contain an op that takes a tensor of the host."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> object:
        for each in tree_leaves((args, kwargs or {})):
            assert not isinstance(each, Tensor) or each.device == META, f"{func} takes {each} from the host"
        return func(*args, **(kwargs or {}))


def model_without_layers() -> GptOss:
    config = SHAPES["20b"]
    rows = torch.empty(config.vocab_size, config.hidden, dtype=torch.bfloat16, device=META)
    layer: Any = SimpleNamespace(router=rows)
    weights = Weights(embedding=rows, layers=(layer,), norm=rows[0].float(), head=rows.t(), rounding=None)
    return GptOss(config, weights)


def run_guesses(sequences: int) -> None:
    model = model_without_layers()
    head = DraftHead(head_shape(model.config), random_draft_weights(head_shape(model.config), model), model)
    head._ops = fused
    tables = Tables(sequences, 100, len(model.config.windows), META)
    guessing = CudaGuesser(head, model, BLOCKS, BLOCK, tables, MOST, records=False)

    def whole(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=META)

    with torch.inference_mode(), OnTheDevice():
        rows = sequences * (1 + MOST)
        hidden = guessing.hidden()
        hidden.found += [
            torch.empty(rows, model.config.hidden, dtype=model.dtype, device=META) for _ in hidden.after
        ]
        own = Pages(
            tables=whole(rows, 100).int(), lengths=whole(rows).int(), starts=whole(rows + 1).int(),
            slots=whole(rows), window=None, block_size=BLOCK, decodes=rows, longest=1,
        )  # fmt: skip
        pages = [own] * len(model.config.windows)
        guessing.keep(whole(MORE_ROWS * rows), hidden, whole(rows), whole(rows), pages)
        shape = DraftShape(sequences, MOST)
        found = guessing._guessed(whole(guessing._length(shape)), shape)
        assert found.shape == (sequences, MOST)


if __name__ == "__main__":
    main()
