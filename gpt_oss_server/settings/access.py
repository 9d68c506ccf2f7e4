"""The rows of the settings' table about access: keys, and how much their owners may use."""

from dataclasses import dataclass

from gpt_oss_server.settings.options import names, optional, setting, size, text, whole

LEAST_PYTHON_MEMORY = 128 * 1024**2  # bytes: a kernel takes most of it before any code has run


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    @property
    def needs_keys(self) -> bool:
        return bool(self.api_key) or self.api_key_file is not None

    api_key: tuple[str, ...] = setting(
        (),
        names("KEY"),
        "A key that requests must have; repeatable. Without any key, the server is open to all who reach it. "
        "Prefer the variable or a file: other users of the machine can read the command line.",
        secret="whole",
    )
    api_key_file: str | None = setting(
        None,
        text("FILE"),
        "A file with one key a line, each with a name, limits and tools of its own where wanted "
        "(docs/access.md). A change takes effect within two seconds.",
    )
    wrong_keys_per_minute: int | None = setting(
        30,
        optional(whole("COUNT", 1)),
        "How many wrong keys an address may send per minute. After that, a key that was never right from "
        "this address gets 429 and is not looked up.",
    )
    key_requests_per_minute: int | None = setting(
        None,
        whole("COUNT", 1),
        "How many requests a key may send per minute, where the file sets nothing else.",
    )
    key_tokens_per_minute: int | None = setting(
        None, whole("COUNT", 1), "How many tokens, read and written, a key may use per minute."
    )
    key_concurrent: int | None = setting(
        None, whole("COUNT", 1), "How many requests of a key may be at work."
    )
    key_background_runs: int | None = setting(
        None, whole("COUNT", 0), "How many background responses of a key may be at work."
    )
    key_python_sessions: int | None = setting(
        None,
        whole("COUNT", 0),
        "How many conversations and containers of a key may hold python's state; `none` is "
        "`--python-max-sessions-per-client`.",
    )
    key_python_memory: int | None = setting(
        None,
        size(least=LEAST_PYTHON_MEMORY),
        "The memory of python's kernels and files of a key, of all its conversations together; `none`: only "
        "`--python-memory` counts.",
    )
    key_stored_bytes: int | None = setting(
        None, size(), "How much a key may have in the store before it must delete some."
    )
    requests_per_minute: int | None = setting(
        None, whole("COUNT", 1), "How many requests all clients may send per minute."
    )
    tokens_per_minute: int | None = setting(
        None, whole("COUNT", 1), "How many tokens all clients may use per minute."
    )
