"""Times the same weights in transformers' GptOss in the same run, as a common reference.

Takes a config and a source of weights and returns tokens per second. transformers is optional: if it is
missing, or the weights do not fit as floats, the result is a sentence with the reason.
"""

from __future__ import annotations

import importlib.util
import logging
from functools import partial
from typing import Any

import torch

from inference.bench.machine import seconds
from inference.config import ModelConfig
from inference.models.tensor_files import TensorSource
from inference.ops.reference import dequantise_mxfp4

NEW_TOKENS = {"cuda": 32, "cpu": 8}


def compare(
    config: ModelConfig, source: TensorSource, device: torch.device, batches: list[int], context: int
) -> dict[str, Any]:
    """Tokens per second of decoding by batch size, or `{"not_measured": sentence}`."""
    if importlib.util.find_spec("transformers") is None:
        return {"not_measured": "transformers is not installed."}
    width = 2 if device.type == "cuda" else 4
    needed = width * (
        3 * config.layers * config.experts * config.hidden * config.intermediate
        + 2 * config.vocab_size * config.hidden
    )
    if device.type == "cuda" and needed * 1.2 > torch.cuda.mem_get_info(device)[0]:
        return {"not_measured": f"transformers needs {needed / 1e9:.0f} GB for these weights as floats."}
    model = _transformers_model(config, source, device)
    return {f"batch {batch}": _decode(model, batch, context, device) for batch in batches}


@torch.inference_mode()
def _transformers_model(config: ModelConfig, source: TensorSource, device: torch.device) -> Any:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from transformers import GptOssConfig, GptOssForCausalLM

    from inference.models.random_checkpoint import hugging_face_json

    raw = {key: value for key, value in hugging_face_json(config, "bf16").items() if key != "architectures"}
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with torch.device(device):
        model: Any = GptOssForCausalLM(GptOssConfig(**raw))
    model = model.to(dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            _fill_experts(parameter, source, name)
        else:
            parameter.copy_(source.take(name, parameter.shape).to(device, dtype))
    return model


def _fill_experts(parameter: torch.Tensor, source: TensorSource, name: str) -> None:
    """Converts expert by expert: all of them as floats would need the memory twice."""
    experts, columns, rows = parameter.shape
    blocks = source.take(f"{name}_blocks", (experts, rows, columns // 32, 16), bytes_only=True)
    scales = source.take(f"{name}_scales", (experts, rows, columns // 32), bytes_only=True)
    for at in range(experts):
        parameter[at] = dequantise_mxfp4(blocks[at], scales[at], parameter.dtype).t().to(parameter.device)


@torch.inference_mode()
def _decode(model: Any, batch: int, context: int, device: torch.device) -> float:
    """Measures the difference of two lengths, so that the prompt does not count."""
    count = NEW_TOKENS[device.type]
    prompt = torch.randint(0, model.config.vocab_size, (batch, context), device=device)

    def generate(tokens: int) -> None:
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, pad_token_id=0,
            min_new_tokens=tokens, max_new_tokens=tokens,
        )  # fmt: skip

    long, short = (seconds(device, partial(generate, tokens)) for tokens in (count + 1, 1))
    return batch * count / (long - short)
