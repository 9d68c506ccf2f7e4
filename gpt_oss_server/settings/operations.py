"""The rows of the settings' table about running a server: its configuration file, TLS, its end, its logs."""

from dataclasses import dataclass

from gpt_oss_server.settings.options import choice, duration, setting, switch, text


@dataclass(frozen=True, kw_only=True)
class OperationsSettings:
    metrics_names: str = setting(
        "own",
        choice("own", "vllm", "both", "off"),
        "The names of the figures at `/metrics`: this server's (`gpt_oss_…`), those of vLLM that dashboards "
        "and autoscalers know (`vllm:…`), or both; off: there is no `/metrics`.",
    )
    otel_endpoint: str | None = setting(
        None,
        text("URL"),
        "The OTLP endpoint that takes OpenTelemetry's traces and metrics, such as `http://127.0.0.1:4318`; "
        "`none` is the value of `OTEL_EXPORTER_OTLP_ENDPOINT`; without either, none are sent. Needs "
        "the extra `otel`.",
    )
    config: str | None = setting(
        None,
        text("FILE"),
        "A TOML file with settings, such as `port = 9000`. Flags and variables win over it.",
    )
    tls_cert: str | None = setting(
        None,
        text("FILE"),
        "The certificate, in PEM, with the certificates of its issuers after it: the server then speaks "
        "HTTPS. It is read again when the file changes.",
        also=("--ssl-certfile", "--ssl-cert-file"),
    )
    tls_key: str | None = setting(
        None,
        text("FILE"),
        "The private key of `--tls-cert`, in PEM without a password; `none`: the certificate's file has it.",
        also=("--ssl-keyfile", "--ssl-key-file"),
    )
    shutdown_grace: float = setting(
        30.0,
        duration(zero=True),
        "How long running responses may finish after Ctrl-C or SIGTERM; a second signal stops immediately.",
    )
    drain_delay: float = setting(
        3.0,
        duration(zero=True),
        "How long after SIGTERM new requests are still served while `/ready` answers 503, so that load "
        "balancers notice. Ctrl-C does not wait.",
    )
    engine_check_interval: float = setting(
        5.0,
        duration(),
        "How often the server checks whether its engine can generate; `/health` reports the result.",
    )
    exit_on_engine_failure: bool = setting(
        False,
        switch(),
        "Whether the process ends, with exit code 3, once its engine cannot generate. For supervisors that "
        "start it again.",
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    log_level: str = setting(
        "info",
        choice("debug", "info", "warning", "error"),
        "The least severe messages that the server writes to standard error.",
        also=("--uvicorn-log-level",),
    )
    log_format: str = setting(
        "text",
        choice("text", "json"),
        "The form of the log: lines for people, or one JSON object a line. With `json`, the start of each "
        "request has a line too; with `text`, only at level debug.",
    )
    access_log: bool = setting(True, switch(), "Whether to log each request as a line when it has ended.")
    log_prompts: bool = setting(False, switch(), "Whether to log prompts and outputs. Off: never.")
