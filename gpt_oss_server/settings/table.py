"""The settings: one frozen table that defines the flags, the variables, their checks and their docs.

A row defines everything about a setting: `max_body_bytes` is `--max-body-bytes`,
`GPT_OSS_SERVER_MAX_BODY_BYTES`, a line of docs/settings.md and a field here.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from gpt_oss_server.settings import options as kinds
from gpt_oss_server.settings.access import AccessSettings
from gpt_oss_server.settings.models import rows_of_models
from gpt_oss_server.settings.network import NetworkSettings
from gpt_oss_server.settings.operations import LogSettings, OperationsSettings
from gpt_oss_server.settings.options import ENV_PREFIX, option_of, setting
from gpt_oss_server.settings.sources import read_values, variables_of
from gpt_oss_server.settings.store import StoreSettings
from inference.backends.table import known_names
from inference.options import EngineOptions


@dataclass(frozen=True, kw_only=True)
class _NamedModel:
    model: str = setting(
        "tiny",
        kinds.text("MODEL"),
        f"{known_names('`')}. `URL,URL` are several servers of one model; of "
        "`vllm:URL|llama:URL`, the second serves while the first cannot.",
        also=("-m", "-hf", "--hf-repo"),
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class ModelSettings(EngineOptions, _NamedModel):
    served_model_name: tuple[str, ...] = setting(
        (),
        kinds.names(),
        "A further name that requests may use as `model`; repeatable; `*` allows any.",
        also=("-a", "--alias"),
    )
    models: tuple[str, ...] = setting(
        (),
        kinds.names("NAME=MODEL"),
        "A further model, served under NAME; repeatable. Rows of its own may follow, in quotes: "
        "`'big=vllm:http://gpu:8000 context=65536'`; in a configuration file, a table `[models.big]`.",
        secret="url",
    )
    tools: tuple[str, ...] = setting(
        ("all",),
        kinds.names("TOOL"),
        "The hosted tools that requests of the model may use: `all`, `none`, or names out of `browser`, "
        "`python`, `container` and `mcp`; repeatable. A key may be allowed fewer.",
    )
    models_max: int | None = setting(
        None,
        kinds.whole("COUNT", 1),
        "How many models that run here may be loaded simultaneously: each is loaded at its first request, "
        "and the one used longest ago is unloaded for another; `none` loads all at the start.",
    )
    idle_unload: float | None = setting(
        None,
        kinds.duration(),
        "How long a model that runs here may be without a request until it is unloaded; it is loaded at the "
        "next one. `none` is for ever.",
    )


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    default_max_output_tokens: int | Literal["auto"] | None = setting(
        kinds.AUTO,
        kinds.automatic(kinds.optional(kinds.whole("TOKENS", 1))),
        "The output limit of a request that sets none; `none` is the rest of the context, and so is `auto`, "
        "but for the embedded model it is 16384, and where a checkpoint states its own, that.",
        also=("-n", "--predict", "--n-predict"),
    )
    max_output_tokens_cap: int | None = setting(
        None, kinds.whole("TOKENS", 1), "The most output tokens of any request, whatever its own limit."
    )
    repetition_limit: int | Literal["auto"] | None = setting(
        kinds.AUTO,
        kinds.automatic(kinds.optional(kinds.whole("TOKENS", 32, 65_536))),
        "How many tokens one cycle of tokens may fill, over and over, until the answer ends as incomplete, "
        "calls since the user's last message included; `none` is no limit, and so is `auto`, but for the "
        "embedded model it is 256.",
    )
    max_parallel_calls: int = setting(
        16,
        kinds.whole("COUNT", 1),
        "How many calls one generation may make, where a request has `parallel_tool_calls: true`.",
    )
    guide_arguments: bool = setting(
        True,
        kinds.switch(),
        "Whether the schemas of tools that are not strict guide the arguments of calls (the names, types and "
        "order of properties), on engines that enforce grammars; off: any JSON object.",
    )
    default_reasoning_effort: str = setting(
        "medium",
        kinds.choice(*EFFORTS),
        "The reasoning effort of a request that sets none.",
        also=("--effort", "--reasoning-effort"),
        common=True,
    )
    default_reasoning_budget: int | None = setting(
        None,
        kinds.whole("TOKENS", 0),
        "The most reasoning tokens of a request that sets no budget; `none` is no limit.",
        also=("--reasoning-budget",),
    )
    identity: str | None = setting(
        None, kinds.text("TEXT"), "The first line of the system message; `none` keeps Harmony's own."
    )
    chat_reasoning_field: str = setting(
        "both",
        kinds.choice("both", "reasoning", "reasoning_content"),
        "The field of a chat message that holds the reasoning; clients differ in which they read.",
    )
    chat_preamble_field: str = setting(
        "content",
        kinds.choice("content", "reasoning"),
        "The field of a chat message that holds the model's preamble, its message to the user before a call; "
        "clients that treat any `content` as the answer need `reasoning`.",
    )
    event_names: str = setting(
        "openai",
        kinds.choice("openai", "open-responses"),
        "The events of reasoning: OpenAI's `response.reasoning_text.…`, or Open Responses' "
        "`response.reasoning.…`. With the latter, `user` is null where a request has none, as that API "
        "requires.",
    )
    end_cut_calls: bool = setting(
        True,
        kinds.switch(),
        "Whether the stream of a response ends the item of a function call that a limit cut off, like every "
        "other item. Off: for clients that run each call that is done, whatever its status.",
    )
    images: str = setting(
        "note",
        kinds.choice("note", "refuse"),
        "What an image in a request becomes, as the model reads text only: a note in the prompt, which the "
        "client does not see, or a 400.",
    )
    moderation: str | None = setting(
        None,
        kinds.text("MODEL"),
        "The model of this server that judges texts (/v1/moderations, and `moderation` in requests), such as "
        "a gpt-oss-safeguard.",
    )
    moderation_policy: str | None = setting(
        None, kinds.text("FILE"), "A text of rules that this model reads before each text that it judges."
    )
    prompts: str | None = setting(
        None,
        kinds.text("DIR"),
        "A folder of prompt templates, `ID.json` or `ID@VERSION.json`: fields of a response's request.",
    )
    call_form: str = setting(
        "channel-first",
        kinds.choice("channel-first", "recipient-first"),
        "How the prompt spells past function calls: `<|channel|>… to=f`, or ` to=f<|channel|>…`.",
    )


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    browser: str | None = setting(
        None,
        kinds.text("BACKEND"),
        "Where the browser tool searches: `exa`, `local:DIR`, `searxng:URL` or `off`. "
        "Unset: `exa` where `EXA_API_KEY` is set, else `off`.",
        common=True,
        secret="url",
    )
    python: str = setting(
        "auto",
        kinds.choice("auto", "bubblewrap", "docker", "unsafe-local", "off"),
        "The sandbox of the python tool. `auto` picks one that works here, but never `unsafe-local`.",
        common=True,
    )
    python_image: str | None = setting(
        None,
        kinds.text("IMAGE"),
        "The image of the python tool's docker sandbox, with `python3` and ipykernel in it; `none` is "
        "`quay.io/jupyter/scipy-notebook`.",
    )
    python_timeout: float = setting(120.0, kinds.duration(), "How long one call of the python tool may run.")
    python_memory: int | None = setting(
        None,
        kinds.size(),
        "The memory of the python tool's kernels and files, of all conversations together; `none` is a "
        "quarter of the machine's.",
    )
    python_max_sessions: int = setting(
        64,
        kinds.whole("COUNT", 1),
        "How many conversations and containers may hold python's state; any more get 429.",
    )
    python_max_sessions_per_client: int = setting(32, kinds.whole("COUNT", 1), "The same for one client.")
    mcp: tuple[str, ...] = setting(
        (),
        kinds.names("NAME=URL"),
        "An MCP server that requests may use by its label; a URL or a command; repeatable.",
        secret="url",
    )
    mcp_timeout: float = setting(
        120.0,
        kinds.duration(),
        "How long one call of an MCP server's tool may run, for the operator's and the requests' servers.",
    )
    tool_server: tuple[str, ...] = setting(
        (),
        kinds.names("URL"),
        "An MCP server whose browser, python or container replaces the built-in one; repeatable.",
        secret="url",
    )
    allow_private_hosts: bool = setting(
        False,
        kinds.switch(),
        "Whether requests may make tools reach private and local addresses. For a lab only.",
    )


_SECTIONS: dict[str, Any] = {
    "Model": ModelSettings,
    "Network": NetworkSettings,
    "Access": AccessSettings,
    "Answers": AnswerSettings,
    "Tools": ToolSettings,
    "Store": StoreSettings,
    "Operations": OperationsSettings,
    "Logging": LogSettings,
}
OPTIONS = tuple(option_of(row, section) for section, rows in _SECTIONS.items() for row in fields(rows))
"""The table, in the order of the docs."""


@dataclass(frozen=True, kw_only=True)
class Settings(
    NetworkSettings,
    AccessSettings,
    AnswerSettings,
    ToolSettings,
    StoreSettings,
    OperationsSettings,
    LogSettings,
    ModelSettings,
):
    """The configuration of one server. The constructor checks the values."""

    def __post_init__(self) -> None:
        for option in OPTIONS:
            option.check(getattr(self, option.name))

    @property
    def by_model(self) -> dict[str, "Settings"]:
        """By name: the settings of each further model. Raises `SettingsError` for a wrong row."""
        rows = rows_of_models(self.models, OPTIONS)
        return {name: replace(self, models=(), **values) for name, values in rows.items()}


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: Settings
    sources: Mapping[str, str]  # by a setting's name: where its value comes from, for those that are set


def read_configuration(given: Mapping[str, Any], environ: Mapping[str, str]) -> Configuration:
    """The settings of a command line (its `vars`), else of an environment, else of the file."""
    values, sources = read_values(OPTIONS, given, environ)
    settings = Settings(**values)
    rows_of_models(settings.models, OPTIONS)  # a wrong row is told before anything starts
    return Configuration(settings, sources)


def misspelt_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables whose names almost match a setting, each with the probably intended variable."""
    known = [name for option in OPTIONS for name in variables_of(option, OPTIONS)]
    unknown = [name for name in environ if name.startswith(ENV_PREFIX) and name not in known]
    close = [(name, difflib.get_close_matches(name, known, 1, 0.9)) for name in sorted(unknown)]
    return [(name, matches[0]) for name, matches in close if matches]
