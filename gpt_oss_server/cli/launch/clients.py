"""The table of clients: what each is, how it is installed, and how it is pointed at a server."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_oss_server.settings import Settings

PROVIDER = "gpt-oss-server"
KEY_VARIABLE = "GPT_OSS_KEY"  # of clients that read their key from a variable that a setting names
CONTEXT = 131_072  # of the published models, where a server states none
_MOST_OUTPUT = 16_384
_CODEX_ONCE = ("exec", "--skip-git-repo-check")
_CODEX_MODELS = Path(__file__).with_name("codex-models.json")


@dataclass(frozen=True, slots=True)
class Target:
    """What a client is pointed at."""

    url: str  # of the server, without a path
    key: str
    model: str
    context: int
    folder: Path  # of the files that a client reads

    @property
    def api(self) -> str:
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Setup:
    """What points a client at a server."""

    variables: Mapping[str, str]
    words: tuple[str, ...] = ()  # before those of the user
    files: Mapping[Path, str] = field(default_factory=dict)

    def write_files(self) -> None:
        for path, text in self.files.items():
            path.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    about: str
    api: str
    package: str
    setup: Callable[[Target], Setup]
    once: tuple[str, ...] = ("-p",)  # words before a question, to which it answers and ends

    @property
    def install(self) -> str:
        return f"npm install -g {self.package}"

    @property
    def missing(self) -> str:
        """What to say where it is not installed."""
        return f"`{self.name}` is not installed. Install it with: {self.install}"


def served_name(settings: Settings) -> str:
    """The name of the model that a server with these settings has."""
    return settings.served_model_name[0] if settings.served_model_name else Path(settings.model).name


def _codex(target: Target) -> Setup:
    catalogue = target.folder / "codex-models.json"
    names = dict.fromkeys(("slug", "display_name"), target.model)
    sizes = dict.fromkeys(("context_window", "max_context_window"), target.context)
    [model] = json.loads(_CODEX_MODELS.read_text(encoding="utf-8"))["models"]
    provider: dict[str, Any] = {"name": PROVIDER, "base_url": target.api, "env_key": KEY_VARIABLE}
    provider |= {"wire_api": "responses", "supports_websockets": True}
    rows = {"model": target.model, "model_provider": PROVIDER, "model_catalog_json": str(catalogue)}
    rows |= {f"model_providers.{PROVIDER}.{name}": value for name, value in provider.items()}
    # TOML reads texts and truth values as JSON writes them.
    words = [word for name, value in rows.items() for word in ("-c", f"{name}={_json(value)}")]
    files = {catalogue: _json({"models": [model | names | sizes]}, indent=2) + "\n"}
    return Setup({KEY_VARIABLE: target.key}, tuple(words), files)


def _claude(target: Target) -> Setup:
    models = [f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("FABLE", "OPUS", "SONNET", "HAIKU")]
    models += ["ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"]
    elsewhere = [f"CLAUDE_CODE_USE_{cloud}" for cloud in ("BEDROCK", "VERTEX", "FOUNDRY")]
    variables = {
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_AUTH_TOKEN": target.key,
        **dict.fromkeys(("ANTHROPIC_API_KEY", *elsewhere), ""),  # they would win
        **dict.fromkeys(models, target.model),
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(target.context),
        **dict.fromkeys(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"), "1"),
    }
    # Variables in the user's own settings win over the environment, and lose to this file.
    path = target.folder / "claude-settings.json"
    return Setup(variables, ("--settings", str(path)), {path: _json({"env": variables}, indent=2) + "\n"})


def _opencode(target: Target) -> Setup:
    limit = {"context": target.context, "output": min(_MOST_OUTPUT, target.context // 2)}
    model = {"name": target.model, "reasoning": True, "tool_call": True, "limit": limit}
    provider = {
        "npm": "@ai-sdk/openai",
        "name": PROVIDER,
        "options": {"baseURL": target.api, "apiKey": target.key},
        "models": {target.model: model},
    }
    names = dict.fromkeys(("model", "small_model"), f"{PROVIDER}/{target.model}")
    settings = {**names, "enabled_providers": [PROVIDER], "provider": {PROVIDER: provider}}
    return Setup({"OPENCODE_CONFIG_CONTENT": _json(settings)})


def _qwen(target: Target) -> Setup:
    words = ("--auth-type", "openai", "--openai-base-url", target.api, "--model", target.model)
    return Setup({"OPENAI_API_KEY": target.key}, words)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


CLIENTS = {
    row.name: row
    for row in (
        Client("codex", "OpenAI's Codex CLI", "Responses", "@openai/codex", _codex, _CODEX_ONCE),
        Client("claude", "Anthropic's Claude Code", "Messages", "@anthropic-ai/claude-code", _claude),
        Client("opencode", "opencode", "Responses", "opencode-ai", _opencode, ("run",)),
        Client("qwen", "Qwen Code", "Chat Completions", "@qwen-code/qwen-code", _qwen),
    )
}
