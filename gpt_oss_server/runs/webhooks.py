"""Tells the operator's addresses how background responses and batches ended, signed as OpenAI's SDKs verify.

Takes what is due from the store. An address that does not take an event is told again, later and later, for
about three days; servers on one store share the work. Private addresses are refused unless the operator
allows them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from typing import TYPE_CHECKING

from gpt_oss_server.caller.key_file import decoded_secret
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.queues.deliveries import Deliveries, Delivery
from tools.extras import how_to_install

if TYPE_CHECKING:
    from tools.browser.network.fetch import Fetcher

_LOOK_SECONDS = 1.0
_SECONDS = 15.0  # for an address to answer
_AT_ONCE = 8  # addresses that are told
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 6 * 3_600.0  # seconds before the next try, twice as long each time
_MOST_ATTEMPTS = 24
_SUCCESSES = range(200, 300)
_log = logging.getLogger(__name__)


class Webhooks:
    def __init__(self, settings: Settings, deliveries: Deliveries, keys: Keyring) -> None:
        """Raises `SettingsError` for a secret that is none."""
        self._deliveries = deliveries
        self._keys = keys
        self._of_all = settings.webhook_url
        needs_secret = deliveries.enabled or any(map(keys.webhooks, keys.owners))
        self._secret = _read_secret(settings) if needs_secret else b""
        self._sender = _new_sender(settings) if needs_secret else None
        self._repeated = Repeated(self.send_due, _LOOK_SECONDS, "Events for webhooks cannot be sent")

    def start(self) -> None:
        if self._deliveries.enabled:
            self._repeated.start()

    async def close(self) -> None:
        await self._repeated.close()
        if self._sender is not None:
            await self._sender.close()

    async def send_due(self) -> None:
        places = asyncio.Semaphore(_AT_ONCE)

        async def send(delivery: Delivery) -> None:
            try:
                await self._send(delivery)
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            while await places.acquire() and (delivery := await self._deliveries.next(2 * _SECONDS)):
                group.create_task(send(delivery))

    async def _send(self, delivery: Delivery) -> None:
        if not delivery.url:
            urls = dict.fromkeys([*self._of_all, *self._keys.webhooks(delivery.owner)])
            await self._deliveries.addressed(delivery, urls)
            self._repeated.wake()
            return
        if not (problem := await self._problem(delivery)):
            await self._deliveries.done(delivery)
        elif delivery.attempts >= _MOST_ATTEMPTS:
            _log.error("The webhook %s never took the event %s. %s", delivery.url, delivery.id, problem)
            await self._deliveries.done(delivery)
        else:
            pause = min(_FIRST_PAUSE * 2 ** (delivery.attempts - 1), _LONGEST_PAUSE)
            _log.warning(
                "The webhook %s did not take the event %s, and is told again in %d s. %s",
                delivery.url,
                delivery.id,
                pause,
                problem,
            )
            await self._deliveries.later(delivery, pause)

    async def _problem(self, delivery: Delivery) -> str:
        """Sends the event. Why the address did not take it; "" if it did."""
        from tools.browser.pages.document import PageError

        assert self._sender is not None
        secret = self._keys.webhooks(delivery.owner).get(delivery.url) or self._secret
        headers = {"content-type": "application/json", **signed(secret, delivery.id, delivery.body)}
        try:
            status = await self._sender.post(delivery.url, delivery.body, headers)
        except PageError as error:
            return str(error)
        return "" if status in _SUCCESSES else f"It answered {status}."


def _new_sender(settings: Settings) -> Fetcher:
    """Its packages belong to an extra, which only servers with webhooks need."""
    try:
        from tools.browser.network.fetch import Fetcher
    except ImportError as error:
        raise SettingsError(how_to_install(error)) from error
    return Fetcher(allow_private_hosts=settings.webhook_private, timeout=_SECONDS)


def _read_secret(settings: Settings) -> bytes:
    if (secret := decoded_secret(settings.webhook_secret or "")) is None:
        made = "whsec_$(openssl rand -base64 32)"
        problem = "Webhooks need a secret to sign their events, of 16 bytes or more in base64"
        raise SettingsError(f"{problem}: --webhook-secret {made}")
    return secret


def signed(secret: bytes, event_id: str, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    now = str(int(time.time()))
    digest = hmac.digest(secret, b".".join((event_id.encode(), now.encode(), body)), hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": event_id, "webhook-timestamp": now, "webhook-signature": signature}
