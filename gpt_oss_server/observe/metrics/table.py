"""The table of figures, from which docs/metrics-reference.md is made."""

from gpt_oss_server.observe.metrics.figures import Figure

PREFIX = "gpt_oss_"


def _bounds(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


_SHORT = _bounds("0.001 0.0025 0.005 0.0075 0.01 0.015 0.02 0.03 0.05 0.075 0.1 0.15 0.2 0.3 0.5 1 2.5 5")
_FIRST = _bounds("0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640")
_WHOLE = _bounds("0.01 0.05 0.1 0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920")
_TOKENS = tuple(step * 10.0**power for power in range(6) for step in (1, 2, 5))


def _counter(name: str, help: str, labels: str = "") -> Figure:
    return Figure(name, "counter", help, tuple(labels.split()))


def _gauge(name: str, help: str, labels: str = "") -> Figure:
    return Figure(name, "gauge", help, tuple(labels.split()))


def _histogram(name: str, help: str, bounds: tuple[float, ...], labels: str = "") -> Figure:
    return Figure(name, "histogram", help, tuple(labels.split()), bounds)


SERVER = _gauge(
    "server_info", "The version of the server and a model that it serves; always 1.", "version model"
)

# --- turns ---------------------------------------------------------------------------------------------

TURNS = _counter(
    "turns",
    "Turns that ended: responses, or choices of completions. The status is completed, incomplete, failed, "
    "cancelled, disconnected (the client left), or handed_over (another server continues it).",
    "api status model",
)
ERRORS = _counter("errors", "Runs that an error ended, by the error's code.", "api code model")
DISCONNECTS = _counter("client_disconnects", "Clients that left before their answer ended.")
SLIPS = _counter(
    "harmony_slips", "The model's departures from the Harmony format and from sense, all repaired.", "kind"
)
DURATION = _histogram(
    "request_duration_seconds",
    "From the arrival of a request for tokens to the end of its answer.",
    _WHOLE,
    "api model",
)
FIRST_TOKEN = _histogram(
    "time_to_first_token_seconds",
    "From the arrival of a request to the first token that the engine sampled for it, of each turn.",
    _FIRST,
    "api model",
)
BETWEEN_TOKENS = _histogram(
    "time_between_tokens_seconds",
    "Between two steps of a generation, as its reader gets them. A step is usually one token.",
    _SHORT,
    "model",
)
PER_TOKEN = _histogram(
    "time_per_output_token_seconds",
    "The mean time between the tokens of a generation after its first, one observation per generation.",
    _SHORT,
    "model",
)
QUEUE = _histogram(
    "queue_seconds", "How long a generation waited until the engine began to compute it.", _FIRST, "model"
)
PREFILL = _histogram("prefill_seconds", "From then to the generation's first token.", _FIRST, "model")
DECODE = _histogram("decode_seconds", "From a generation's first token to its last.", _WHOLE, "model")

# --- tokens --------------------------------------------------------------------------------------------

PROMPT_TOKENS = _counter(
    "prompt_tokens", "Input tokens, as the usage of ended answers reports them.", "api model"
)
CACHED_TOKENS = _counter(
    "cached_prompt_tokens", "Those of them that came from the prefix cache.", "api model"
)
OUTPUT_TOKENS = _counter("output_tokens", "Sampled tokens, those of running answers included.", "api model")
REASONING_TOKENS = _counter("reasoning_tokens", "Those of ended answers that were reasoning.", "api model")
PROMPT_SIZE = _histogram("request_prompt_tokens", "The input tokens of a request.", _TOKENS, "model")
OUTPUT_SIZE = _histogram("request_output_tokens", "The output tokens of a request.", _TOKENS, "model")

# --- the engine ----------------------------------------------------------------------------------------

ENGINE: dict[str, Figure] = {
    "running": _gauge("requests_running", "Generations that the engine computes.", "model"),
    "waiting": _gauge("requests_waiting", "Generations that wait for the engine.", "model"),
    "kv_usage": _gauge(
        "kv_usage_ratio", "The share of the memory for keys and values in use, from 0 to 1.", "model"
    ),
    "prompt_tokens": _counter(
        "prefix_cache_queries", "Prompt tokens that were looked up in the prefix cache.", "model"
    ),
    "cached_tokens": _counter("prefix_cache_hits", "Prompt tokens that were found there.", "model"),
    "preemptions": _counter(
        "preemptions", "Sequences that gave their memory back, to be computed again later.", "model"
    ),
    "steps": _counter("engine_steps", "Steps of the model.", "model"),
    "failed_steps": _counter("engine_failed_steps", "Steps of the model that failed.", "model"),
    "drafted_tokens": _counter("drafted_tokens", "Tokens that were guessed (--speculation).", "model"),
    "accepted_tokens": _counter("accepted_tokens", "Guessed tokens that were right.", "model"),
    "restored_from_disk": _counter(
        "cache_restored_from_disk", "Prompt tokens that were restored from the folder (--cache-dir).", "model"
    ),
    "restored_from_memory": _counter(
        "cache_restored_from_memory", "Those restored from the machine's memory (--cache-memory).", "model"
    ),
    "cache_read_bytes": _counter("cache_read_bytes", "Bytes of keys and values that were restored.", "model"),
    "cache_written_bytes": _counter("cache_written_bytes", "Bytes that were written to the folder.", "model"),
    "cache_saved_seconds": _counter(
        "cache_saved_seconds",
        "What computing the restored tokens would have taken, less the restoring.",
        "model",
    ),
    "cache_disk_bytes": _gauge(
        "cache_disk_bytes", "The size of the folder, other models' part included.", "model"
    ),
    "cache_memory_bytes": _gauge(
        "cache_memory_bytes", "What the cache holds in the machine's memory.", "model"
    ),
    "cache_queued": _gauge("cache_queued", "Packs of blocks that wait to be written.", "model"),
}
"""The engine's measures, by the names that it gives them: they are read when Prometheus asks."""

# --- tools, stores, background runs --------------------------------------------------------------------

TOOL_CALLS = _counter(
    "tool_calls",
    "Calls of built-in and MCP tools. The outcome is done, failed, timeout or cancelled. Servers that "
    "requests name count as `mcp`.",
    "tool outcome",
)
TOOL_SECONDS = _histogram("tool_call_duration_seconds", "How long a call of a tool took.", _WHOLE, "tool")
TOOL_SESSIONS = _gauge(
    "tool_sessions", "Conversations that hold state of a tool, such as a python kernel.", "tool"
)
STORE_OPERATIONS = _counter(
    "store_operations", "Operations of a store. The outcome is done or failed.", "store operation outcome"
)
STORE_SECONDS = _histogram(
    "store_operation_duration_seconds", "How long an operation of a store took.", _SHORT, "store"
)
STORED = _gauge("store_objects", "Stored responses and conversations.", "kind")
STORED_BYTES = _gauge("store_bytes", "Their size.")
BACKGROUND = _gauge("background_runs", "Background responses that run in this process.")
BACKGROUND_ENDED = _counter(
    "background_runs_ended", "Background responses that ended in this process.", "status"
)

# --- HTTP ----------------------------------------------------------------------------------------------

HTTP_REQUESTS = _counter(
    "http_requests", "Answered requests, by the template of their route.", "method route status"
)
HTTP_SECONDS = _histogram(
    "http_request_duration_seconds",
    "From the arrival of a request to the end of its answer's body.",
    _WHOLE,
    "route",
)
HTTP_RUNNING = _gauge("http_requests_in_progress", "Requests that are being answered.")
WRONG_KEYS = _counter(
    "wrong_api_keys",
    "Requests and handshakes with a wrong API key. The outcome is refused (401), or limited: the address had "
    "sent too many, so that the key was not looked up (429).",
    "outcome",
)
LOOP_LAG = _histogram(
    "event_loop_lag_seconds",
    "How late the event loop runs what is due, four times a second. All that the process serves is as late.",
    _SHORT,
)
SOCKETS = _gauge("websocket_connections", "Open WebSockets.")

_parts = [part.values() if part is ENGINE else (part,) for part in list(globals().values())]
TABLE: tuple[Figure, ...] = tuple(row for part in _parts for row in part if isinstance(row, Figure))
"""All rows, in the order of this file."""
