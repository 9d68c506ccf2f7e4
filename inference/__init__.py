"""Token ids in, sampled token ids out: the gpt-oss models, and engines that stand in for them.

    engine = inference.load("tiny")                       # or a folder, a Hugging Face repo, scripted:FILE, …
    async for step in engine.generate(tokens, Sampling()): …

    inference.infer_next_token(tokens, temperature=0.0, new_request=True)

Importing this package imports no framework: the first model that needs torch imports it.
"""

from inference.backends.table import load as load
from inference.engine import CheckpointError as CheckpointError
from inference.engine import ContextOverflow as ContextOverflow
from inference.engine import Engine as Engine
from inference.engine import EngineBusy as EngineBusy
from inference.engine import EngineClosed as EngineClosed
from inference.engine import EngineFailed as EngineFailed
from inference.engine import EngineInfo as EngineInfo
from inference.engine import Finish as Finish
from inference.engine import InferenceError as InferenceError
from inference.engine import ModelNotFound as ModelNotFound
from inference.engine import Sampling as Sampling
from inference.engine import Step as Step
from inference.engine import TokenLogprob as TokenLogprob
from inference.next_token import infer_next_token as infer_next_token
from inference.next_token import setup_model as setup_model
