"""The rows of the settings' table about the network: addresses, limits of requests, and who may send them."""

from dataclasses import dataclass

from gpt_oss_server.settings import options as kinds
from gpt_oss_server.settings.options import setting


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    host: str = setting(
        "127.0.0.1", kinds.text("HOST"), "The address to listen on; `0.0.0.0` is all addresses.", common=True
    )
    port: int = setting(
        8000,
        kinds.whole("PORT", 0, 65_535),
        "The port to listen on; 0 picks a free one.",
        also=("-p",),
        common=True,
    )
    max_body_bytes: int = setting(
        16 * 1024**2, kinds.size(), "The largest request body; larger ones get 413."
    )
    max_choices: int = setting(
        2048, kinds.whole("COUNT", 1), "The most choices of one request: prompts times `n`."
    )
    max_connections: int = setting(
        2048,
        kinds.whole("COUNT", 1),
        "How many connections may be open. A further one takes the place of the longest idle one, or gets "
        "503 if all are at work. The limit of open files (`ulimit -n`) can lower it.",
    )
    webhook_url: tuple[str, ...] = setting(
        (),
        kinds.names("URL"),
        "An address that is told how background responses and batches end; repeatable. A key may have one of "
        "its own (docs/webhooks.md).",
        secret="url",
    )
    webhook_secret: str | None = setting(
        None,
        kinds.text("SECRET"),
        "What the events for webhooks are signed with: `whsec_` and 16 bytes or more in base64. Prefer the "
        "variable: other users of the machine can read the command line.",
        secret="whole",
    )
    webhook_private: bool = setting(
        False, kinds.switch(), "Whether webhooks may have addresses of this machine or of private networks."
    )
    request_timeout: float = setting(
        30.0,
        kinds.duration(),
        "How long the head of a request may take to arrive, and its body, plus a second for each 10 KiB.",
    )
    allow_host: tuple[str, ...] = setting(
        (),
        kinds.names("HOST", "host names without a port such as chat.example, or *", kinds.is_host),
        "A name in the `Host` header under which requests are served, such as that of a reverse proxy; "
        "repeatable; `*` allows any. Names of this machine and the address of `--host` are always allowed; "
        "with an address beyond this machine, so are IP addresses and names of private networks.",
    )
    unknown_fields: str = setting(
        "warn",
        kinds.choice("reject", "warn", "ignore"),
        "What happens to a request with a field that the server does not know: 400 with the field that was "
        "probably meant, a header (`x-unknown-fields`) and a line in the log, or nothing.",
    )
    allow_origin: tuple[str, ...] = setting(
        (),
        kinds.names("ORIGIN", "origins such as https://chat.example, or *", kinds.is_origin),
        "A web site whose pages may use the server, such as `https://chat.example`; repeatable; `*` allows "
        "any. Pages of this machine are always allowed.",
    )
    websocket: bool = setting(
        True,
        kinds.switch(),
        "Whether to serve `/v1/responses` over WebSocket too; off: such requests get 426.",
    )
    allow_priority: bool = setting(
        False, kinds.switch(), "Whether requests may set `priority`, to start before those of others."
    )
    keep_alive: float | None = setting(
        15.0,
        kinds.optional(kinds.duration()),
        "How long a stream may be silent, e.g. while a tool runs, before it sends a keep-alive; or `none`.",
    )
    web: str = setting(
        "on",
        kinds.choice("on", "off"),
        "Whether `/` is the playground, a page that chats and shows every token; else it leads to `/docs`.",
    )
    debug_api: str = setting(
        kinds.AUTO,
        kinds.choice("auto", "on", "off"),
        "Whether clients may read traces (`/v1/responses/{id}/trace`); `auto`: if only this machine can.",
    )
