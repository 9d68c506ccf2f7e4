"""Converts a run's checkpoint to the package's compact file: `python -m recipe.training.export`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from inference.tiny.codes import FIXED
from inference.tiny.expand import (
    COMPACT,
    layers_of,
    pack_rows,
    pack_table,
    read_compact,
    shape_of,
    unpack_rows,
)
from inference.tiny.shape import Shape
from recipe.network.quantise import pack, unpack
from recipe.network.widen import ShapeError, widened
from recipe.text.vocabulary import token_table

COUNTED = ("step", "tokens", "seconds")


def compact(state: dict[str, Tensor], learned: Tensor) -> dict[str, Tensor]:
    """The tensors of the compact file, under the checkpoint's names if a checkpoint has them."""
    out: dict[str, Tensor] = {
        "learned.ids": learned.int(),
        **pack_rows("learned.in", state["learned_in"][1:]),
        **pack_rows("learned.out", state["learned_out"][1:]),
        "map.in": state["map_in"].half(),  # the rows that they produce are in bf16
        "map.out": state["map_out"].half(),
        "model.norm.weight": state["norm"].bfloat16(),
        **pack_table(token_table()),
    }
    for name, tensor in state.items():
        if not name.startswith("layers."):
            continue
        if name.endswith("layernorm"):
            out[f"model.{name}.weight"] = tensor.bfloat16()
        elif ".router." in name:
            out[f"model.{name}"] = tensor.bfloat16()
        elif ".mlp." in name and name.endswith("_proj"):
            at = "model." + name.replace(".mlp.", ".mlp.experts.")
            out[f"{at}_blocks"], out[f"{at}_scales"] = pack(tensor)
        elif name.endswith("_proj.weight"):
            out.update(pack_rows(f"model.{name}", tensor))
        else:
            out["model." + name.replace(".mlp.", ".mlp.experts.")] = tensor.bfloat16()
    return {name: tensor.contiguous() for name, tensor in out.items()}


def state_of(compact_file: Path) -> dict[str, Any]:
    """The checkpoint that `compact_file` was made from: rounded, and without the optimisers' averages."""
    held, about = read_compact(compact_file)
    state = {
        "map_in": held["map.in"].float(),
        "map_out": held["map.out"].float(),
        "norm": held["model.norm.weight"].float(),
    }
    for way in ("in", "out"):
        rows = unpack_rows(f"learned.{way}", held)
        state[f"learned_{way}"] = torch.cat((torch.zeros(1, rows.shape[1]), rows))
    layers = layers_of(held)
    for name in (name for name in layers if name.startswith("model.layers.")):
        ours = name.removeprefix("model.").replace(".mlp.experts.", ".mlp.")
        if name.endswith("_blocks"):
            stem = name.removesuffix("_blocks")
            state[ours.removesuffix("_blocks")] = unpack(layers[name], layers[f"{stem}_scales"])
        elif not name.endswith("_scales"):
            at = ours.removesuffix(".weight") if "layernorm" in ours else ours
            state[at] = layers[name].float()
    return {
        "model": state,
        "optimisers": [],
        "learned": held["learned.ids"].long().numpy(),
        "shape": asdict(shape_of(about)),
        "step": int(about["step"]),
        "tokens": int(about["tokens"]),
        "seconds": float(about["seconds"]),
    }


class UnfitError(Exception):
    """A run that the current recipe cannot continue."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"The run in {file.parent} has another shape of model than the current recipe. Choose another "
            "--folder; a file exported from that run can be its --start."
        )


def checkpoint_of(file: Path) -> dict[str, Any]:
    """The content of a run's checkpoint."""
    saved: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)
    if "shape" not in saved or len(saved["model"]["map_in"]) != FIXED:
        raise UnfitError(file)
    return saved


def weights_of(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of an exported file, or of a run's checkpoint (its mean if it has one); and all content."""
    exported = file.suffix == ".safetensors"
    saved: dict[str, Any] = state_of(file) if exported else checkpoint_of(file)
    average = saved.get("average")
    return average["weights"] if average else saved["model"], saved


def counted(saved: dict[str, Any]) -> dict[str, Any]:
    """The training of a checkpoint's weights so far, including that of the file it started from."""
    before = saved.get("before", {})
    return {name: saved[name] + before.get(name, 0) for name in COUNTED}


def shares_of(given: Sequence[float], files: int) -> list[float]:
    """The shares of the run and of each file; with one number, the files share the rest equally."""
    shares = [given[0], *[(1 - given[0]) / files] * files] if len(given) == 1 else list(given)
    if len(shares) != files + 1 or min(shares) < 0 or not math.isclose(sum(shares), 1, abs_tol=1e-3):
        numbers = " ".join(f"{share:g}" for share in given)
        raise ValueError(
            f"--share {numbers}: give one number from 0 to 1 for the run, or {files + 1} that add up to 1, "
            "for the run and for each --mean-with in order"
        )
    return shares


def mean_with(
    weights: dict[str, Tensor], saved: dict[str, Any], files: Sequence[Path], shares: Sequence[float]
) -> dict[str, Tensor]:
    """The mean of `weights` and of those in `files`, by their shares."""
    so_far = shares[0]
    for file, each in zip(files, shares[1:], strict=True):
        others, theirs = weights_of(file)
        others = widened(others, Shape(**theirs["shape"]), Shape(**saved["shape"]), faint=0.0)
        so_far += each
        place_of = {token: place for place, token in enumerate(theirs["learned"].tolist(), 1)}
        places = torch.tensor([0, *(place_of.get(token, -1) for token in saved["learned"].tolist())])
        for name in ("learned_in", "learned_out"):  # rows that the file lacks do not change
            others[name] = torch.where(places[:, None] < 0, weights[name], others[name][places.clamp(min=0)])
        part = each / so_far if so_far else 0.0
        weights = {name: torch.lerp(tensor, others[name], part) for name, tensor in weights.items()}
    return weights


def export(
    checkpoint: Path, target: Path, earlier: Sequence[Path] = (), share: Sequence[float] = (0.5,)
) -> int:
    """Writes `target`, as the mean with any `earlier` files; returns its size in bytes."""
    weights, saved = weights_of(checkpoint)
    if earlier:
        weights = mean_with(weights, saved, earlier, shares_of(share, len(earlier)))
    tensors = compact(weights, torch.from_numpy(saved["learned"]))
    about = {name: str(number) for name, number in counted(saved).items()}
    save_file(tensors, target, metadata={"shape": json.dumps(saved["shape"]), **about})
    return target.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/tiny"))
    parser.add_argument("--to", type=Path, default=COMPACT)
    parser.add_argument(
        "--mean-with",
        type=Path,
        action="append",
        default=[],
        help="an exported file or a checkpoint: writes their mean; repeatable",
    )
    parser.add_argument(
        "--share",
        type=float,
        nargs="+",
        default=[0.5],
        metavar="S",
        help="this run's share of that mean (files share the rest equally), or one for the run and each file",
    )
    arguments = parser.parse_args()
    try:
        shares_of(arguments.share, max(1, len(arguments.mean_with)))
    except ValueError as error:
        parser.error(str(error))
    checkpoint, earlier = arguments.folder / "checkpoint.pt", arguments.mean_with
    for option, file in (("--folder", checkpoint), *(("--mean-with", file) for file in earlier)):
        if not file.is_file():
            parser.error(f"{option}: {file} does not exist")
    try:
        size = export(checkpoint, arguments.to, earlier, arguments.share)
    except (UnfitError, ShapeError) as error:
        parser.error(str(error))
    sys.stdout.write(f"{arguments.to}: {size:,} bytes\n")


if __name__ == "__main__":
    main()
