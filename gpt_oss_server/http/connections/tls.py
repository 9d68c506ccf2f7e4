"""TLS: the certificate, checked at the start and read again when its file changes, and the handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_oss_server.settings import Settings
from gpt_oss_server.settings.options import SettingsError
from gpt_oss_server.settings.sources import file_of

if TYPE_CHECKING:
    from cryptography import x509

_SOON = timedelta(days=14)
_PAUSE = 0.5  # seconds, before the next try to accept a connection
_log = logging.getLogger(__name__)


def tls_of(settings: Settings) -> Tls | None:
    """Raises `SettingsError` if the settings name files that cannot serve."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise SettingsError("--tls-key needs --tls-cert, the certificate that belongs to it.")
        return None
    key = None if settings.tls_key is None else file_of(settings.tls_key, "--tls-key")
    return Tls(file_of(settings.tls_cert, "--tls-cert"), key)


class Tls:
    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Raises `SettingsError`. Without `key`, the certificate's file has it."""
        self.certificate, self.key = certificate, key
        self._seen = self._times()
        self._first = self._checked(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    @property
    def is_self_signed(self) -> bool:
        """Whether clients trust it only if they are given the certificate itself."""
        return self._first.issuer == self._first.subject

    def name_for(self, host: str) -> str:
        """The host, or if the certificate is not for it, the first name that it is for."""
        names = self._names()
        return host if host in names or not names else names[0].replace("*", "www", 1)

    def read_again_if_changed(self, context: ssl.SSLContext) -> None:
        """New connections use the new certificate. Files that cannot serve change nothing."""
        if (seen := self._times()) == self._seen:
            return
        self._seen = seen
        try:
            self._checked(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._first = self._checked(context)
        except SettingsError as error:
            _log.error("The certificate changed, and the server keeps the one that it has. %s", error)
        else:
            _log.info("The certificate changed. The new one is valid until %s.", _day(self._first))

    def _times(self) -> tuple[int, ...]:
        files = (self.certificate, *([self.key] if self.key is not None else []))
        return tuple(map(_time_of, files))

    def _checked(self, context: ssl.SSLContext) -> x509.Certificate:
        """Loads both into the context; returns the certificate."""
        from cryptography import x509  # takes 80 ms, and most servers have no certificate

        certificate, key = self.certificate, self.key or self.certificate
        text, text_of_key = _read(certificate), _read(key)
        try:
            first = x509.load_pem_x509_certificates(text)[0]
        except ValueError as error:
            raise SettingsError(
                f"--tls-cert: {certificate} is not a certificate in PEM, which begins with "
                "-----BEGIN CERTIFICATE-----."
            ) from error
        if b"PRIVATE KEY-----" not in text_of_key:
            named = "--tls-key" if self.key is not None else "--tls-cert: give the key with --tls-key, as"
            raise SettingsError(f"{named} {key} has no private key in PEM.")
        try:
            context.load_cert_chain(certificate, key, _no_password)
        except _Encrypted as error:
            raise SettingsError(
                f"The private key in {key} has a password. Write it without one: openssl pkey -in {key} -out "
                "server.key"
            ) from error
        except ssl.SSLError as error:
            raise SettingsError(_mismatch(certificate, key, error)) from error
        except OSError as error:  # a file has gone since it was read
            raise SettingsError(f"TLS cannot read {certificate} and {key}: {error.strerror}.") from error
        _check_dates(certificate, first)
        return first

    def _names(self) -> list[str]:
        from cryptography import x509
        from cryptography.x509.oid import ExtensionOID

        try:
            found = self._first.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        except x509.ExtensionNotFound:
            return []
        assert isinstance(found, x509.SubjectAlternativeName)
        addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
        return [*found.get_values_for_type(x509.DNSName), *addresses]


class Handshakes:
    """Accepts connections, and passes each on once its handshake is complete."""

    def __init__(
        self, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol], *, most: int, seconds: float
    ) -> None:
        """Each handshake has `seconds`; the first of more than `most` ends."""
        self._context, self._protocol = context, protocol
        self._most, self._seconds = most, seconds
        self._open: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, listener: socket.socket, backlog: int) -> None:
        listener.setblocking(False)
        listener.listen(backlog)
        self._accepting.append(asyncio.create_task(self._accept(listener)))

    def stop(self) -> None:
        for task in (*self._accepting, *self._open):
            task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many open files
                _log.warning("A connection cannot be accepted: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._open) >= self._most:
                next(iter(self._open)).cancel()
            task = asyncio.create_task(self._shake(accepted))
            self._open[task] = None
            task.add_done_callback(self._open.pop)

    async def _shake(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=self._seconds
            )
        except OSError:  # no TLS, too late, or the client has left
            accepted.close()


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    """Without this function, OpenSSL would ask at the terminal."""
    raise _Encrypted


def _time_of(file: Path) -> int:
    """0 for a file that cannot be looked at: `_read` states the reason."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _read(file: Path) -> bytes:
    """A file may go at any time, as it is renewed while the server runs."""
    try:
        if not file.is_file():
            raise SettingsError(f"There is no file {file} (--tls-cert, --tls-key).")
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(f"The file {file} cannot be read: {error.strerror}.") from error


def _mismatch(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"The private key in {key} does not belong to the certificate in {certificate}."
    return f"TLS cannot use {certificate} with {key}: {error.reason or error}."


def _check_dates(file: Path, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        raise SettingsError(f"The certificate in {file} has expired on {_day(certificate)}. Renew it.")
    if certificate.not_valid_before_utc > now:
        begins = certificate.not_valid_before_utc
        raise SettingsError(f"The certificate in {file} is not valid before {begins:%Y-%m-%d %H:%M} UTC.")
    if certificate.not_valid_after_utc < now + _SOON:
        _log.warning("The certificate in %s expires on %s.", file, _day(certificate))


def _day(certificate: x509.Certificate) -> str:
    return f"{certificate.not_valid_after_utc:%Y-%m-%d}"
