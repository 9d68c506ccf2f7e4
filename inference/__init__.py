"""Token ids in, sampled token ids out: the gpt-oss models, and engines that stand in for them.

    engine = inference.load("tiny")                       # or a folder, a Hugging Face repo, scripted:FILE, …
    async for step in engine.generate(tokens, Sampling()): …

    inference.infer_next_token(tokens, temperature=0.0, new_request=True)

Importing this package imports no framework: the first model that needs torch imports it.
"""

from inference.backends.table import load
from inference.engine import (
    CheckpointError,
    ContextOverflow,
    Engine,
    EngineBusy,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    Finish,
    InferenceError,
    ModelNotFound,
    Sampling,
    Step,
    TokenLogprob,
)
from inference.next_token import infer_next_token, setup_model

__all__ = [
    "CheckpointError",
    "ContextOverflow",
    "Engine",
    "EngineBusy",
    "EngineClosed",
    "EngineFailed",
    "EngineInfo",
    "Finish",
    "InferenceError",
    "ModelNotFound",
    "Sampling",
    "Step",
    "TokenLogprob",
    "infer_next_token",
    "load",
    "setup_model",
]
