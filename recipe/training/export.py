"""A run's checkpoint to the compact file that the package carries: `python -m recipe.training.export`."""

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
    """The tensors of the compact file, under the checkpoint's names where they are part of one."""
    out: dict[str, Tensor] = {
        "learned.ids": learned.int(),
        **pack_rows("learned.in", state["learned_in"][1:]),
        **pack_rows("learned.out", state["learned_out"][1:]),
        "map.in": state["map_in"].half(),  # what is made of them is kept in bf16
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
    """The checkpoint that `compact_file` was made of: rounded, and without the optimisers' averages."""
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
    """A run that the recipe, as it is now, cannot go on with."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"The run in {file.parent} was begun with another shape of model than the recipe has now. "
            "Take another --folder; what was exported of that run can be its --start."
        )


def checkpoint_of(file: Path) -> dict[str, Any]:
    """What a run's checkpoint holds."""
    saved: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)
    if "shape" not in saved or len(saved["model"]["map_in"]) != FIXED:
        raise UnfitError(file)
    return saved


def weights_of(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Of a run's checkpoint, the running mean where it has one, or of an exported file; and all it holds."""
    exported = file.suffix == ".safetensors"
    saved: dict[str, Any] = state_of(file) if exported else checkpoint_of(file)
    average = saved.get("average")
    return average["weights"] if average else saved["model"], saved


def counted(saved: dict[str, Any]) -> dict[str, Any]:
    """How far the weights of a checkpoint have come, with what its run began with."""
    before = saved.get("before", {})
    return {name: saved[name] + before.get(name, 0) for name in COUNTED}


def shares_of(given: Sequence[float], files: int) -> list[float]:
    """Of the run and of each file: as given, or the run's alone, and the files have the rest, alike."""
    shares = [given[0], *[(1 - given[0]) / files] * files] if len(given) == 1 else list(given)
    if len(shares) != files + 1 or min(shares) < 0 or not math.isclose(sum(shares), 1, abs_tol=1e-3):
        said = " ".join(f"{share:g}" for share in given)
        raise ValueError(
            f"--share {said}: give one number from 0 to 1 for the run, or {files + 1}, for the run and for "
            "each --mean-with in its order, that add up to 1"
        )
    return shares


def mean_with(
    weights: dict[str, Tensor], saved: dict[str, Any], files: Sequence[Path], shares: Sequence[float]
) -> dict[str, Tensor]:
    """The mean of `weights` and of what `files` hold, by their shares."""
    so_far = shares[0]
    for file, each in zip(files, shares[1:], strict=True):
        others, theirs = weights_of(file)
        others = widened(others, Shape(**theirs["shape"]), Shape(**saved["shape"]), faint=0.0)
        so_far += each
        place_of = {token: place for place, token in enumerate(theirs["learned"].tolist(), 1)}
        places = torch.tensor([0, *(place_of.get(token, -1) for token in saved["learned"].tolist())])
        for name in ("learned_in", "learned_out"):  # rows that the file has not stay as they are
            others[name] = torch.where(places[:, None] < 0, weights[name], others[name][places.clamp(min=0)])
        part = each / so_far if so_far else 0.0
        weights = {name: torch.lerp(tensor, others[name], part) for name, tensor in weights.items()}
    return weights


def export(
    checkpoint: Path, target: Path, earlier: Sequence[Path] = (), share: Sequence[float] = (0.5,)
) -> int:
    """Writes `target`, the mean with `earlier` files if there are any; returns its size in bytes."""
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
        help="a file exported earlier, or a checkpoint: their mean. Can be given several times",
    )
    parser.add_argument(
        "--share",
        type=float,
        nargs="+",
        default=[0.5],
        metavar="S",
        help="of this run in that mean, the files have the rest, alike; or one for the run and one for each",
    )
    arguments = parser.parse_args()
    try:
        shares_of(arguments.share, max(1, len(arguments.mean_with)))
    except ValueError as error:
        parser.error(str(error))
    checkpoint, earlier = arguments.folder / "checkpoint.pt", arguments.mean_with
    for option, file in (("--folder", checkpoint), *(("--mean-with", file) for file in earlier)):
        if not file.is_file():
            parser.error(f"{option}: there is no {file}")
    try:
        size = export(checkpoint, arguments.to, earlier, arguments.share)
    except (UnfitError, ShapeError) as error:
        parser.error(str(error))
    sys.stdout.write(f"{arguments.to}: {size:,} bytes\n")


if __name__ == "__main__":
    main()
