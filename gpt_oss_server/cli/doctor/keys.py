"""Checks the keys: are there some where other machines can reach the server, and who else can read them?"""

from __future__ import annotations

import stat

from gpt_oss_server.cli.doctor.finding import Finding, missing, ok
from gpt_oss_server.runs.served import keyring_of
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.settings.sources import file_of
from tools.addresses import is_of_this_machine

_CHECK = "keys"


async def keys(settings: Settings) -> Finding:
    if not settings.needs_keys:
        if is_of_this_machine(settings.host):
            return ok(_CHECK, "No key is needed, and only this machine can reach the server.")
        return missing(
            _CHECK,
            f"The server needs no key, and --host {settings.host} lets other machines reach it.",
            "--api-key-file FILE, or keys in the variable GPT_OSS_SERVER_API_KEY.",
            needed=False,
        )
    try:
        owners = keyring_of(settings).owners
    except SettingsError as error:
        return missing(_CHECK, str(error), "", needed=True)
    found = f"{_count(len(owners), 'key')} of {_count(len(set(owners)), 'owner')}."
    named = settings.api_key_file
    if named is not None and file_of(named, "--api-key-file").stat().st_mode & stat.S_IROTH:
        found = f"{found} Every user of this machine can read {named}."
        return missing(_CHECK, found, f"chmod 600 {named}", needed=False)
    return ok(_CHECK, found)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
