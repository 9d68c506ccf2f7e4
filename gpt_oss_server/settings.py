"""The settings: one frozen table that makes the flags, the variables, their checks and their docs.

In: a command line and an environment. Out: `Settings`, or a `SettingsError` whose text is a sentence. A row
below is all there is to a setting: `max_body_bytes` is `--max-body-bytes`, `GPT_OSS_SERVER_MAX_BODY_BYTES`,
a line of docs/settings.md and a field here. Imports nothing of the server and no third party.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gpt_oss_server.options import (
    ENV_PREFIX,
    Option,
    SettingsError,
    choice,
    duration,
    is_origin,
    names,
    option_of,
    optional,
    place,
    setting,
    size,
    switch,
    text,
    whole,
)

__all__ = ["OPTIONS", "Settings", "SettingsError", "add_flags", "misspelt_variables", "read_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server was told to be. Built directly it is checked too."""

    model: str = setting(
        "tiny",
        text("MODEL"),
        "Model",
        "`tiny` (embedded), a checkpoint folder, a Hugging Face repo id, `scripted:FILE`, or `random:20b` "
        "(random weights, for measuring).",
    )
    device: str = setting(
        "auto",
        choice("auto", "cpu", "cuda"),
        "Model",
        "Where the model runs; `auto` takes a GPU where there is one.",
    )
    context: int | None = setting(
        None, optional(whole("TOKENS", 1)), "Model", "The context length; `none` is the model's own."
    )
    max_concurrent: int | None = setting(
        None,
        optional(whole("COUNT", 1)),
        "Model",
        "How many requests are generated for at once; `none` is 32 on a CPU, 64 on a GPU.",
    )
    max_waiting: int = setting(
        1000,
        whole("COUNT", 0),
        "Model",
        "How many further requests may wait for their turn; more are answered 503 with `retry-after`.",
    )
    kv_memory: int | None = setting(
        None,
        optional(size()),
        "Model",
        "The memory for keys and values; `none` is a quarter of what is free, on a GPU most of it.",
    )
    speculation: bool = setting(
        False,
        switch(),
        "Model",
        "Whether tokens that followed the same words before are guessed, and checked in one step.",
    )
    served_model_name: tuple[str, ...] = setting(
        (),
        names(),
        "Model",
        "A further name that requests may give as `model`; repeatable; `*` allows any.",
    )

    host: str = setting(
        "127.0.0.1", text("HOST"), "Network", "The address to listen on; `0.0.0.0` is every one."
    )
    port: int = setting(
        8000, whole("PORT", 0, 65_535), "Network", "The port to listen on; 0 picks a free one."
    )
    max_body_bytes: int = setting(
        64 * 1024**2, size(), "Network", "The largest request body that is read; more is answered 413."
    )
    allow_origin: tuple[str, ...] = setting(
        (),
        names("ORIGIN", "origins such as https://chat.example, or *", is_origin),
        "Network",
        "A web site whose pages may use the server, such as `https://chat.example`; repeatable; `*` allows "
        "any. Pages of this machine always may.",
    )
    websocket: bool = setting(
        True,
        switch(),
        "Network",
        "Whether `/v1/responses` is served over WebSocket too; off: 426 to who asks.",
    )
    keep_alive: float | None = setting(
        15.0,
        optional(duration()),
        "Network",
        "How long a stream is silent, e.g. while a tool runs, until it gives a sign of life; or `none`.",
    )
    shutdown_grace: float = setting(
        30.0,
        duration(zero=True),
        "Network",
        "How long Ctrl-C or SIGTERM lets running responses finish; a second Ctrl-C stops at once.",
    )

    default_max_output_tokens: int | None = setting(
        16_384,
        optional(whole("TOKENS", 1)),
        "Answers",
        "The output limit of a request that names none; `none` is up to the context.",
    )
    max_output_tokens_cap: int | None = setting(
        None,
        optional(whole("TOKENS", 1)),
        "Answers",
        "The most output tokens any request gets, whatever it asks.",
    )
    default_reasoning_effort: str = setting(
        "medium",
        choice("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        "Answers",
        "The reasoning effort of a request that names none.",
    )
    default_reasoning_budget: int | None = setting(
        None,
        optional(whole("TOKENS", 0)),
        "Answers",
        "The most reasoning tokens of a request that names no number; `none` is as many as the model likes.",
    )
    identity: str | None = setting(
        None,
        optional(text("TEXT")),
        "Answers",
        "The first line of the system message, in place of Harmony's own; `none` keeps that.",
    )
    chat_reasoning_field: str = setting(
        "both",
        choice("both", "reasoning", "reasoning_content"),
        "Answers",
        "The field of a chat message that holds the reasoning; clients differ in which they read.",
    )
    chat_preamble_field: str = setting(
        "content",
        choice("content", "reasoning"),
        "Answers",
        "The field of a chat message that holds what the model tells the user before a call; clients that "
        "take any `content` for the answer need `reasoning`.",
    )
    event_names: str = setting(
        "openai",
        choice("openai", "open-responses"),
        "Answers",
        "The events of reasoning: OpenAI's `response.reasoning_text.…`, or Open Responses' "
        "`response.reasoning.…`.",
    )
    call_form: str = setting(
        "channel-first",
        choice("channel-first", "recipient-first"),
        "Answers",
        "How past function calls are written into the prompt: `<|channel|>… to=f`, or ` to=f<|channel|>…`.",
    )

    browser: str | None = setting(
        None,
        optional(text("BACKEND")),
        "Tools",
        "Where the browser tool searches: `exa`, `local:DIR`, `searxng:URL` or `off`. "
        "Unset: `exa` where `EXA_API_KEY` is set, else `off`.",
    )
    python: str = setting(
        "auto",
        choice("auto", "bubblewrap", "docker", "unsafe-local", "off"),
        "Tools",
        "The sandbox of the python tool. `auto` takes one that works here, and never `unsafe-local`.",
    )
    python_image: str | None = setting(
        None,
        optional(text("IMAGE")),
        "Tools",
        "The image of the python tool's docker sandbox, with `python3` and ipykernel in it; `none` is "
        "`quay.io/jupyter/scipy-notebook`.",
    )
    python_timeout: float = setting(
        120.0, duration(), "Tools", "How long one call of the python tool may run."
    )
    mcp: tuple[str, ...] = setting(
        (),
        names("NAME=URL"),
        "Tools",
        "An MCP server that requests may use by its label; a command in place of the URL; repeatable.",
    )
    mcp_timeout: float = setting(
        120.0,
        duration(),
        "Tools",
        "How long one call of an MCP server's tool may run, the operator's or a request's.",
    )
    tool_server: tuple[str, ...] = setting(
        (),
        names("URL"),
        "Tools",
        "An MCP server whose browser, python or container is used in place of ours; repeatable.",
    )
    allow_private_hosts: bool = setting(
        False,
        switch(),
        "Tools",
        "Whether tools may reach private and local addresses at a request's wish. For a lab only.",
    )

    store: str = setting(
        "memory",
        place("memory"),
        "Store",
        "Where responses, conversations and the events of background responses are kept; `memory` ends with "
        "the server.",
    )
    store_default: bool = setting(
        True, switch(), "Store", "Whether a response is stored when its request does not say (`store`)."
    )
    store_max_responses: int = setting(
        10_000, whole("COUNT", 1), "Store", "How many responses the store keeps; the oldest go first."
    )
    store_max_conversations: int = setting(
        10_000,
        whole("COUNT", 1),
        "Store",
        "How many conversations the store keeps; those whose last change is oldest go first.",
    )
    store_max_bytes: int = setting(512 * 1024**2, size(), "Store", "How much memory the store may take.")
    store_max_age: float = setting(
        30 * 86_400.0,
        duration(),
        "Store",
        "How long a stored response is kept, or a conversation after its last change.",
    )

    background_max_runs: int = setting(
        256,
        whole("COUNT", 1),
        "Store",
        "How many background responses may run or wait at once; more are answered 503.",
    )
    background_log_max_bytes: int = setting(
        128 * 1024**2,
        size(),
        "Store",
        "How much memory the events of background responses may take; those of ended ones go first.",
    )
    background_log_max_age: float = setting(
        600.0, duration(), "Store", "How long the events of an ended background response can be read again."
    )

    sealing_key_file: str | None = setting(
        None,
        optional(text("FILE")),
        "Store",
        "The key that seals what clients keep for the server (reasoning, compacted conversations); created "
        "where there is none. `none`: a file in the user's state folder. Servers with the same key read each "
        "other's items.",
    )

    log_level: str = setting(
        "info", choice("debug", "info", "warning", "error"), "Logging", "What is written to standard error."
    )
    log_prompts: bool = setting(
        False, switch(), "Logging", "Whether prompts and outputs are logged. Off: never."
    )
    access_log: bool = setting(False, switch(), "Logging", "Whether each HTTP request is logged as a line.")

    def __post_init__(self) -> None:
        for option in OPTIONS:
            option.check(getattr(self, option.name))


OPTIONS: tuple[Option, ...] = tuple(option_of(row) for row in fields(Settings))
"""The table, in the order of the docs."""


def add_flags(parser: argparse.ArgumentParser, only: Sequence[str] | None = None) -> None:
    """The settings as flags of `parser`: all of them, or those named. What is not given is not set."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in OPTIONS:
        if only is not None and option.name not in only:
            continue
        group = groups.get(option.section) or parser.add_argument_group(option.section.lower())
        groups[option.section] = group
        told = f"{option.help} Default: {option.shown_default}.".replace("`", "").replace("%", "%%")
        how: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": told}
        if option.kind.switch:
            group.add_argument(option.flag, action=argparse.BooleanOptionalAction, **how)
        else:
            action = "append" if option.kind.many else "store"
            group.add_argument(option.flag, action=action, metavar=option.kind.metavar, **how)


def read_settings(given: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The settings of a command line (`vars` of its namespace) and an environment; the command line wins."""
    values: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in given:
            values[option.name] = option.from_flag(given[option.name])
        elif (raw := environ.get(option.variable, "")) != "":
            values[option.name] = option.read(raw, option.variable)
    return Settings(**values)


def misspelt_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that nearly name a setting, each with the one that was probably meant."""
    known = [option.variable for option in OPTIONS]
    strange = [name for name in environ if name.startswith(ENV_PREFIX) and name not in known]
    close = [(name, difflib.get_close_matches(name, known, 1, 0.9)) for name in sorted(strange)]
    return [(name, matches[0]) for name, matches in close if matches]
