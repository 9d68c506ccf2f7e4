"""Other programs' servers that cannot be an engine here: why, and what to name in their place.

By the prefix of their names. Data only.
"""

from __future__ import annotations

_ELSE = "Serve the model with vLLM or SGLang, and name that server or a router in front of several: "
UNSERVED = {
    "trtllm:": (
        "TensorRT-LLM's completions refuse fields that this server needs, and its list of models does not "
        f"state the context's length. {_ELSE}vllm:URL or sglang:URL."
    ),
    "dynamo:": f"Dynamo's completions return no token ids. {_ELSE}vllm:URL or sglang:URL.",
    "ollama:": (
        "Ollama returns no token ids. Serve the GGUF file with llama-server, and name that: llama:URL."
    ),
}
