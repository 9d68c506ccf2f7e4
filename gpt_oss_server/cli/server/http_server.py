"""The HTTP server around the app: the socket, the greeting, and the ways to stop.

It serves `/health` alone until the app exists. The first signal drains the server (`observe/health/drain`); a
second one ends the process immediately, as does the first while the model loads.
"""

import asyncio
import errno
import logging
import math
import os
import signal
import socket
import ssl
import sys
import threading
from types import FrameType
from typing import cast

import uvicorn

from gpt_oss_server import __version__
from gpt_oss_server.cli.server.greeting import greeting
from gpt_oss_server.cli.server.start import Start
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.http.connections.http_protocol import HttpProtocol
from gpt_oss_server.http.connections.limits import ConnectionLimits
from gpt_oss_server.http.connections.socket_protocol import SocketProtocol
from gpt_oss_server.http.connections.tls import Handshakes, Tls, tls_of
from gpt_oss_server.http.late_app import LateApp
from gpt_oss_server.observe.health.drain import BackgroundWork, Drain, ExitCode
from gpt_oss_server.observe.health.state import Health
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.kinds.places import kept_where
from tools.addresses import is_of_this_machine

_log = logging.getLogger(__name__)
EXPOSED = (
    "Other machines can reach this server, and it needs no key: every client that reaches it can use the "
    "model, run python and the other enabled tools, browse with this machine's address, and read and delete "
    "what others have stored if they learn its ids. Start it with --api-key or --api-key-file, or keep it to "
    "this machine with --host 127.0.0.1."
)
_LAST_PORT = 65_535
_IDLE = 75  # seconds that an unused connection stays open: proxies and clients reuse theirs for up to 60
_TICKS_TO_CERTIFICATE = 50  # of a tenth of a second: a changed certificate is found after 5 s
_FILES = 128  # open files that are left for everything but clients' connections
_REPORTING = 3  # seconds after the grace period in which stopped responses report their failure
_CLOSING = 30  # seconds that tools, engine and stores may then take to close


def serve_until_stopped(start: Start, listener: socket.socket, settings: Settings) -> int:
    """Returns the exit code. Raises what the start failed with, if it did."""
    server = Server(settings, start, tls_of(settings))
    server.run(sockets=[listener])
    if server.app.failure is not None:
        raise server.app.failure
    if server.app.loading:
        # The loading thread cannot be interrupted, and may fail when the interpreter ends around it.
        console.err("Stopped while the model was loading.")
        os._exit(128 + server.stopped_by)
    fields = {"exit_code": int(server.drain.code)}
    _log.info("The server has stopped.", extra={"event": "server stopped", "fields": fields})
    return server.drain.code


def _config(app: LateApp, settings: Settings, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HttpProtocol.within(connection_limits(settings)),
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        ws=SocketProtocol,
        ws_max_size=settings.max_body_bytes,
        timeout_keep_alive=_IDLE,
        ws_per_message_deflate=False,  # costs more than it saves when clients are near
        ws_ping_timeout=60.0,  # a client's own work may keep it from answering a ping
        lifespan="on",
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None or tls.key is None else str(tls.key),
        log_config=None,
        access_log=False,  # `observe/logs` has a line of its own
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace) + _REPORTING,
    )


def connection_limits(settings: Settings) -> ConnectionLimits:
    """The settings' limits; fewer connections where the process may not open that many files."""
    count = min(settings.max_connections, max(_most_files() - _FILES, _FILES))
    return ConnectionLimits(count=count, seconds=settings.request_timeout)


def _most_files() -> int:
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


class Server(uvicorn.Server):
    """uvicorn, plus a greeting once it can generate, and a message about how long stopping takes."""

    def __init__(self, settings: Settings, start: Start, tls: Tls | None = None) -> None:
        self.app = LateApp(start.app, self._loaded)
        super().__init__(_config(self.app, settings, tls))
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._handshakes: Handshakes | None = None
        self._settings = settings
        self._start = start
        self._port, self._exposed = settings.port, False
        self.drain = Drain(grace=settings.shutdown_grace)
        self.stopped_by: int = signal.SIGINT

    def _loaded(self) -> None:
        if self.app.failure is not None:
            self.should_exit = True
            return
        self._greet()
        settings = self._settings
        if settings.exit_on_engine_failure and self._health is not None:
            self._health.on_failure = self._engine_failed

    @property
    def _health(self) -> Health | None:
        return None if self.app.app is None else self.app.app.state.health

    def _engine_failed(self, problem: str) -> None:
        assert self._health is not None
        _log.error("The server ends, because its engine cannot generate (--exit-on-engine-failure).")
        self.drain.begin_after_failure(self._health)

    async def on_tick(self, counter: int) -> bool:
        self.should_exit = self.should_exit or self.drain.is_due
        if self._tls is not None and self._context is not None and counter % _TICKS_TO_CERTIFICATE == 0:
            self._tls.read_again_if_changed(self._context)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.stop_waiting()
        if self._handshakes is not None:
            self._handshakes.stop()
        self._end_in_any_case()
        if self.app.app is None:
            await super().shutdown(sockets)
            return
        work: BackgroundWork = self.app.app.state.service.continuing
        draining = asyncio.create_task(self.drain.run(work, self.server_state.tasks))
        try:
            await super().shutdown(sockets)
        finally:
            draining.cancel()

    def _end_in_any_case(self) -> None:
        """Ends the process even if something never closes, such as an engine that hangs in a driver."""

        def end() -> None:
            _log.error("The server could not close everything within %d s, and ends anyway.", _CLOSING)
            os._exit(self.drain.code or ExitCode.LATE)

        timer = threading.Timer(self._settings.shutdown_grace + _REPORTING + _CLOSING, end)
        timer.daemon = True
        timer.start()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        context, self.config.ssl = self.config.ssl, None
        try:
            await super().startup([] if context is not None else sockets)
            if context is not None:
                self._shake_hands(context, sockets or [])
        except OSError as error:  # another process took the port while the model was loading
            raise CommandLineError(_port_problem(self._settings.host, self._settings.port, error)) from error
        if sockets:
            host, self._port = sockets[0].getsockname()[:2]
            self._exposed = not is_of_this_machine(host) and not self._settings.needs_keys
            if self._exposed:
                _log.warning(EXPOSED)

    def _shake_hands(self, context: ssl.SSLContext, sockets: list[socket.socket]) -> None:
        self._context = context
        limits = connection_limits(self._settings)

        def protocol() -> asyncio.Protocol:
            limited = cast(type[HttpProtocol], self.config.http_protocol_class)
            return limited(self.config, self.server_state, self.lifespan.state)

        self._handshakes = Handshakes(
            context, protocol, most=limits.count // 4, seconds=limits.handshake_seconds
        )
        for listener in sockets:
            self._handshakes.start(listener, self.config.backlog)

    @property
    def _url(self) -> str:
        """The address for a client on this machine."""
        host = self._settings.host
        host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        if self._tls is None:
            return http_url(host, self._port)
        return http_url(self._tls.name_for(host), self._port, "https")

    def _greet(self) -> None:
        """Logs or prints the greeting. A closed standard output does not matter to the server."""
        if self._start.engine is None:
            return
        model, settings = self._start.engine.info, self._settings
        if settings.log_format == "json":
            fields = {"version": __version__, "model": model.name, "context": model.context_length}
            fields |= {"store": kept_where(settings.store), "url": self._url}
            _log.info("The server is ready.", extra={"event": "server ready", "fields": fields})
        elif sys.stdout is not None:
            is_unknown = self._tls is not None and self._tls.is_self_signed
            ca = f"--cacert {settings.tls_cert} " if is_unknown else ""  # what curl needs to trust it
            try:
                console.out(greeting(settings, model, self._url, self._exposed, ca))
            except OSError:
                console.give_up_output()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.drain.has_begun:
            self._notify("Stopped immediately.")
            os._exit(128 + sig)
        self.stopped_by, settings = sig, self._settings
        delay = 0.0 if sig == signal.SIGINT or self.app.app is None else settings.drain_delay
        self.drain.begin(self._health, delay=delay)
        if self.app.app is None:
            self.should_exit = True
            return
        running = len(self.server_state.tasks) + self.app.app.state.service.background.count
        if running or delay:
            self._notify(_stopping(running, delay, settings.shutdown_grace))

    def _notify(self, message: str) -> None:
        if self._settings.log_format == "json":
            _log.warning(message)
        else:
            console.err(f"\n{message}")


def _stopping(running: int, delay: float, grace: float) -> str:
    words = [f"Not ready any more; new requests are still served for {delay:g} s."] if delay else []
    if running:
        what = "1 running request" if running == 1 else f"{running} running requests"
        words.append(f"Finishing {what}, {grace:g} s at most.")
    return " ".join([*words, "Ctrl-C or SIGTERM again stops immediately."])


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; raises `CommandLineError` if there is none."""
    if not 0 <= port <= _LAST_PORT:  # some systems would take it modulo 65,536
        raise CommandLineError(f"Cannot listen on port {port}: it must be from 0 to {_LAST_PORT}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        problem = f"Cannot find an address {host!r} to listen on: {error}."
        raise CommandLineError(f"{problem} Choose another --host.") from error
    listener = socket.socket(family, kind, protocol)
    if sys.platform != "win32":  # there the option would let two servers share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CommandLineError(_port_problem(host, port, error)) from error
    return listener


def _port_problem(host: str, port: int, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"Port {port} needs rights that this user lacks. Choose one above 1023 with --port."
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is in use. Choose another with --port (make serve PORT=8001), "
            "or --port 0 for a free one."
        )
    problem = f"Cannot listen on {host}, port {port}: {error.strerror or error}."
    return f"{problem} Choose another --host or --port."


def http_url(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
