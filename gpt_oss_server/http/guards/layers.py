"""Adds the guards around an application's routes, in the order in which they refuse, where needed."""

from fastapi import FastAPI

from gpt_oss_server.caller.guesses import Guesses
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.caller.limiter import Limiter
from gpt_oss_server.http.guards.hosts import HostGuard, Hosts
from gpt_oss_server.http.guards.keys import KeyGuard, OnWrongKey
from gpt_oss_server.http.guards.limits import LimitGuard
from gpt_oss_server.http.guards.origins import OriginGuard, Origins
from gpt_oss_server.settings import Settings


def add_guards(
    app: FastAPI,
    settings: Settings,
    *,
    limiter: Limiter,
    keys: Keyring,
    origins: Origins,
    on_wrong_key: OnWrongKey,
) -> None:
    """From the inside out."""
    if limiter.is_needed:
        app.add_middleware(LimitGuard, limiter=limiter)
    if not keys.is_open:
        guesses = Guesses(settings.wrong_keys_per_minute)
        app.add_middleware(KeyGuard, keys=keys, guesses=guesses, on_wrong_key=on_wrong_key)
    app.add_middleware(OriginGuard, origins=origins)
    app.add_middleware(HostGuard, hosts=Hosts(settings))
