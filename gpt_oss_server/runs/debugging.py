"""Whether clients may read tokens and traces: `--debug-api`, or by default only programs of this machine."""

from __future__ import annotations

from gpt_oss_server.settings import Settings
from gpt_oss_server.settings.options import AUTO
from tools.addresses import is_of_this_machine


def allows_debugging(settings: Settings) -> bool:
    if settings.debug_api != AUTO:
        return settings.debug_api == "on"
    return is_of_this_machine(settings.host)
