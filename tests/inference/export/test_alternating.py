"""A model whose layers are made to alternate computes what it computed before."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.config import ModelConfig
from inference.export.alternating import alternating, spread_layers
from inference.models.gpt_oss import GptOss
from inference.models.tensor_files import TensorFiles
from inference.models.weights import find_checkpoint, load_weights


@pytest.mark.parametrize(
    ("slides", "places"),
    [("SFS", [0, 1, 2]), ("FS", [None, 0, 1]), ("SS", [0, None, 1]), ("SFFF", [0, 1, None, 2, None, 3])],
)
def test_layers_are_inserted_where_two_of_one_kind_meet(slides: str, places: list[int | None]) -> None:
    assert spread_layers([kind == "S" for kind in slides]) == places


def test_layers_that_alternate_stay(checkpoint: Path, config: ModelConfig) -> None:
    files = TensorFiles(find_checkpoint(checkpoint))
    assert alternating(files, config) == (files, config)


@pytest.mark.parametrize("slides", [(False, True), (True, True), (False, False)])
def test_the_logits_stay_the_same(slides: tuple[bool, ...], checkpoint: Path, config: ModelConfig) -> None:
    config = replace(config, sliding_layers=(slides * config.layers)[: config.layers])
    files = TensorFiles(find_checkpoint(checkpoint))
    wider, widened = alternating(files, config)
    assert widened.layers > config.layers
    assert widened.sliding_layers == tuple(layer % 2 == 0 for layer in range(widened.layers))
    found, wanted = (
        GptOss(each, load_weights(source, each, device=torch.device("cpu"), dtype=torch.float32))
        for source, each in ((wider, widened), (files, config))
    )
    tokens = torch.randint(config.vocab_size, (3 * config.sliding_window,)).tolist()
    assert torch.equal(
        found.all_logits(tokens, found.new_cache()), wanted.all_logits(tokens, wanted.new_cache())
    )
