"""Models with random weights, for measuring the whole server without a checkpoint.

Takes a shape's name and returns the local engine of a model of that shape, with weights made on the device.
Every shape gets Harmony's vocabulary, so that the server can serve it. Its text means nothing.
"""

from __future__ import annotations

from dataclasses import replace

from inference.engine import EngineInfo, ModelNotFound
from inference.local.deferred import register_now
from inference.local.engine import LocalEngine, described, device_of, engine_of
from inference.local.options import LocalOptions, check_device
from inference.shapes import SHAPES

ABOUT = "Random weights, for measuring only, its text means nothing: "


def load_random(
    shape: str,
    *,
    device: str | None = None,
    context: int | None = None,
    progress: bool | None = None,
    options: LocalOptions | None = None,
) -> LocalEngine:
    """Raises `ModelNotFound` for an unknown shape, `CheckpointError` if the model cannot be made."""
    if shape not in SHAPES:
        known = ", ".join(f"random:{name}" for name in SHAPES)
        raise ModelNotFound(f"There is no shape {shape!r} for random weights. Known: {known}.")
    options = options or LocalOptions()
    on = device_of(device)
    check_device(options, on)
    register_now()  # torch.Generator needs it
    from inference.config import VOCABULARY
    from inference.models.random_weights import random_model

    config = replace(SHAPES[shape], vocab_size=VOCABULARY).with_context(context, f"the shape {shape}")
    model = random_model(config, on, progress=progress, precision=options.precision)
    info = EngineInfo(
        name=f"random-{shape}",
        context_length=config.context_length,
        vocab_size=config.vocab_size,
        description=f"{ABOUT}{described(model)}",
        enforces_grammar=True,
        scores_prompts=True,
    )
    return engine_of(model, info, options, may_shorten=context is None, progress=progress)
