"""Models with random weights, for measuring the whole server without a checkpoint.

Every shape gets Harmony's vocabulary, so that the server can serve it. Its text means nothing.
"""

from dataclasses import replace

from inference.config import SHAPES, VOCABULARY
from inference.engine import Engine, ModelNotFound
from inference.local.engine import chosen_device, describe, start_engine
from inference.models.random_weights import random_model
from inference.options import EngineOptions

ABOUT = "Random weights, for measuring only, its text means nothing: "


def load(model: str, options: EngineOptions, progress: bool | None) -> Engine:
    """Raises `ModelNotFound` for an unknown shape, `CheckpointError` if the model cannot be made."""
    shape = model.removeprefix("random:")
    if shape not in SHAPES:
        known = ", ".join(f"random:{name}" for name in SHAPES)
        raise ModelNotFound(f"There is no shape {shape!r} for random weights. Known: {known}.")
    device = chosen_device(options)
    config = replace(SHAPES[shape], vocab_size=VOCABULARY).with_context(options.context, f"the shape {shape}")
    random = random_model(config, device, progress=progress, precision=options.precision)
    return start_engine(random, describe(random, f"random-{shape}", ABOUT), options, progress)
