"""What `gpt-oss-server store` does: one function for each action, which returns the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.kinds.table import open_database
from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.conversations import delete_conversation
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.responses import delete_response
from gpt_oss_server.stores.sql.sizes import statistics
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper


async def act(action: str, names: list[str], settings: Settings) -> int:
    if names and action != "delete":
        raise CommandLineError(f"store {action} concerns the whole store: leave {' '.join(names)} out.")
    database = open_database(settings.store)
    try:
        return await _ACTIONS[action](database, names, settings)
    finally:
        await database.close()


async def stat(database: Database, names: list[str], settings: Settings) -> int:
    held = await database.read(statistics)
    oldest = "none" if held.oldest is None else f"{datetime.fromtimestamp(held.oldest):%Y-%m-%d %H:%M}"
    for name, value in (
        ("store", database.place),
        ("responses", f"{held.responses:,}"),
        ("oldest response", oldest),
        ("conversations", f"{held.conversations:,}"),
        ("turns", f"{held.turns:,}"),
        ("size", _size(held.bytes)),
        ("running in background", f"{held.running:,}"),
        ("event logs", f"{held.logs:,} ({_size(held.log_bytes)})"),
        ("traces", f"{held.traces:,} ({_size(held.trace_bytes)})"),
    ):
        console.out(f"{name:<22} {value}")
    return 0


async def vacuum(database: Database, names: list[str], settings: Settings) -> int:
    deleted = await Sweeper(database, Bounds.from_settings(settings)).sweep()
    await asyncio.to_thread(database.compact)
    console.err(f"Deleted {deleted:,} entries that exceeded the bounds, and returned the unused space.")
    return 0


async def delete(database: Database, names: list[str], settings: Settings) -> int:
    if not names:
        raise CommandLineError("Name what to delete: gpt-oss-server store delete resp_…")

    def deletes(tx: Transaction, name: str) -> bool:
        return delete_response(tx, key_of(name)) or delete_conversation(tx, key_of(name))

    def work(tx: Transaction) -> set[str]:
        return {name for name in names if not deletes(tx, name)}

    missing = await database.write(work)
    for name in sorted(missing):
        console.err(f"The store has no response or conversation {name!r}.")
    return 1 if missing else 0


Action = Callable[[Database, list[str], Settings], Coroutine[Any, Any, int]]
_ACTIONS: dict[str, Action] = {"stat": stat, "vacuum": vacuum, "delete": delete}


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count} bytes"
