"""The rows of the settings' table about what is stored, and about background responses."""

from dataclasses import dataclass

from gpt_oss_server.settings import options as kinds
from gpt_oss_server.settings.options import place, setting


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    store: str = setting(
        "memory",
        place("memory, sqlite, sqlite:PATH or postgres://…", "memory", "sqlite", "postgres", "postgresql"),
        "Where to keep responses, conversations and the events of background responses: `memory`, which is "
        "lost when the server ends; `sqlite`, a file in the user's state folder; `sqlite:PATH`; or a "
        "`postgres://…` database, which several servers may share.",
        common=True,
        secret="url",
    )
    store_default: bool = setting(
        True, kinds.switch(), "Whether to store a response whose request does not set `store`."
    )
    store_max_responses: int | None = setting(
        None,
        kinds.whole("COUNT", 1),
        "How many responses the store keeps; it evicts the oldest first. `none` is 10,000 in memory, and no "
        "limit elsewhere.",
    )
    store_max_conversations: int | None = setting(
        None,
        kinds.whole("COUNT", 1),
        "How many conversations the store keeps; it evicts the least recently changed first. `none` is "
        "10,000 in memory, and no limit elsewhere.",
    )
    store_max_bytes: int | None = setting(
        None,
        kinds.size(),
        "How many bytes responses and conversations may use; the oldest are evicted first. `none` is 512MiB "
        "in memory, and no limit elsewhere.",
    )
    store_max_age: float | None = setting(
        30 * 86_400.0,
        kinds.optional(kinds.duration()),
        "How long the store keeps a response, and a batch that has ended; `none` is until it is deleted.",
    )
    store_max_conversation_age: float | None = setting(
        None,
        kinds.duration(),
        "How long the store keeps a conversation after its last change; `none` is until it is deleted.",
    )

    files: str | None = setting(
        None,
        kinds.text("DIR"),
        "The folder for the content of files, which servers on the same store share, or a bucket, "
        "`s3://BUCKET/PREFIX`, with `gpt-oss-server[s3]`; `none` is the store itself. It needs a store other "
        "than `memory`.",
    )
    file_max_bytes: int = setting(512 * 1024**2, kinds.size(), "The largest file that a client may upload.")
    files_max_bytes: int | None = setting(
        None,
        kinds.size(),
        "How many bytes all files together may have; `none` is 512MiB in memory, and no limit elsewhere.",
    )

    embeddings: str | None = setting(
        None,
        kinds.text("URL"),
        "The base URL of an OpenAI-compatible server, such as `http://127.0.0.1:8081/v1`, whose vectors "
        "vector stores search besides words.",
        secret="url",
    )
    embeddings_model: str | None = setting(
        None, kinds.text("MODEL"), "Its model; `none` is the first that it lists."
    )
    embeddings_key: str | None = setting(
        None,
        kinds.text("KEY"),
        "Its key; prefer a file (`--embeddings-key-file`) or the variable.",
        secret="whole",
    )
    embeddings_query_prefix: str | None = setting(
        None,
        kinds.text("TEXT"),
        "What the model wants before each query, such as `query:`; one space follows it.",
    )
    embeddings_passage_prefix: str | None = setting(
        None, kinds.text("TEXT"), "The same before each passage, such as `passage:`."
    )
    reranker: str | None = setting(
        None,
        kinds.text("URL"),
        "The base URL of a server with `/v1/rerank`, which orders the best passages of a search anew.",
        secret="url",
    )
    reranker_model: str | None = setting(
        None, kinds.text("MODEL"), "Its model; `none` is the first that it lists."
    )
    reranker_key: str | None = setting(
        None,
        kinds.text("KEY"),
        "Its key; prefer a file (`--reranker-key-file`) or the variable.",
        secret="whole",
    )

    batch_concurrent: int = setting(
        16,
        kinds.whole("COUNT", 1),
        "How many requests of batches may be at work at once. They start after all others.",
    )
    on_disconnect: str = setting(
        "cancel",
        kinds.choice("cancel", "continue"),
        "What happens to a stored, streamed response whose client disconnects: `continue` runs it to its "
        "end, and `GET /v1/responses/{id}?stream=true&starting_after=N` reads on. A request may choose.",
    )
    background_max_runs: int = setting(
        256,
        kinds.whole("COUNT", 1),
        "How many background responses may run or wait simultaneously; any more get 503.",
    )
    background_max_attempts: int = setting(
        3,
        kinds.whole("COUNT", 1),
        "How many servers may try to finish a background response, each stopping unexpectedly, before it "
        "fails.",
    )
    background_lease: float = setting(
        30.0,
        kinds.duration(),
        "How long a server may give no sign of life before another one continues its background responses.",
    )
    background_log_max_bytes: int = setting(
        128 * 1024**2,
        kinds.size(),
        "How many bytes the events of background responses may use; ended ones are evicted first.",
    )
    background_log_max_age: float = setting(
        600.0, kinds.duration(), "How long the events of an ended background response can be read again."
    )
    trace_max_bytes: int = setting(
        64 * 1024**2,
        kinds.size(),
        "How many bytes the traces of stored responses may use, where clients may read them "
        "(`--debug-api`); the oldest go first. A store other than `memory` keeps them over a restart.",
    )

    sealing_key_file: str | None = setting(
        None,
        kinds.text("FILE"),
        "The file of the key that seals data that clients keep for the server (reasoning, compacted "
        "conversations); created if missing. `none`: with `--store memory`, a file in the user's state "
        "folder; otherwise the store itself. Servers with the same key read each other's items.",
    )
