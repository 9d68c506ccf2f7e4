"""The same figures under the names and labels of vLLM's server, as far as their meaning is the same."""

from collections import Counter
from collections.abc import Mapping
from typing import cast

from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figure, Histogram, Labels, Value

PREFIX = "vllm:"
LABELS = ("model_name", "engine")
REASON = "finished_reason"
ENGINE = "0"

NAMES: dict[Figure, str] = {
    table.ENGINE["running"]: "num_requests_running",
    table.ENGINE["waiting"]: "num_requests_waiting",
    table.ENGINE["kv_usage"]: "kv_cache_usage_perc",
    table.ENGINE["prompt_tokens"]: "prefix_cache_queries",
    table.ENGINE["cached_tokens"]: "prefix_cache_hits",
    table.ENGINE["preemptions"]: "num_preemptions",
    table.PROMPT_TOKENS: "prompt_tokens",
    table.OUTPUT_TOKENS: "generation_tokens",
    table.FIRST_TOKEN: "time_to_first_token_seconds",
    table.BETWEEN_TOKENS: "inter_token_latency_seconds",
    table.PER_TOKEN: "request_time_per_output_token_seconds",
    table.DURATION: "e2e_request_latency_seconds",
    table.QUEUE: "request_queue_time_seconds",
    table.PREFILL: "request_prefill_time_seconds",
    table.DECODE: "request_decode_time_seconds",
    table.PROMPT_SIZE: "request_prompt_tokens",
    table.OUTPUT_SIZE: "request_generation_tokens",
}
SUCCESS = "request_success"
_REASONS = {"completed": "stop", "incomplete": "length", "failed": "error"}
_REASONS |= dict.fromkeys(("cancelled", "disconnected"), "abort")


def by_model(figure: Figure, values: Mapping[Labels, Value]) -> dict[Labels, Value]:
    """Sums over this server's APIs, which vLLM does not tell apart. The model is the last label."""
    sums: dict[Labels, Value] = {}
    for (*_, model), value in values.items():
        labels = (model, ENGINE)
        if not isinstance(value, Histogram):
            sums[labels] = cast(float, sums.get(labels, 0.0)) + value
            continue
        total = sums.setdefault(labels, figure.empty())
        assert isinstance(total, Histogram)
        total.counts = [before + more for before, more in zip(total.counts, value.counts, strict=True)]
        total.sum += value.sum
    return sums


def successes(turns: Mapping[Labels, Value]) -> dict[Labels, Value]:
    """Ended turns by vLLM's reasons, from those by API and status. All reasons have a value."""
    counts: Counter[Labels] = Counter()
    for (_, status, model), value in turns.items():
        counts.update({(model, ENGINE, reason): 0 for reason in _REASONS.values()})
        if status in _REASONS and not isinstance(value, Histogram):
            counts[(model, ENGINE, _REASONS[status])] += int(value)
    return dict(counts)
