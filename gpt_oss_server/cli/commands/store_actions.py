"""What `gpt-oss-server store` does: one function for each action, which returns the exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import Any

from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.kinds.table import open_database
from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.conversations import delete_conversation
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.responses import delete_response
from gpt_oss_server.stores.sql.sizes import statistics
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper
from gpt_oss_server.stores.sql.transfer import FORMAT, Export, import_records


async def act(action: str, names: list[str], settings: Settings) -> int:
    database = open_database(settings.store)
    try:
        return await _ACTIONS[action](database, names, settings)
    finally:
        await database.close()


async def stat(database: Database, names: list[str], settings: Settings) -> int:
    _takes_nothing("stat", names)
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
    _takes_nothing("vacuum", names)
    deleted = await Sweeper(database, Bounds.from_settings(settings)).sweep()
    await asyncio.to_thread(database.compact)
    console.err(f"Deleted {deleted:,} entries that exceeded the bounds, and returned the unused space.")
    return 0


async def export(database: Database, names: list[str], settings: Settings) -> int:
    so_far, missing = Export(frozenset(map(key_of, names))), set(names)
    console.out(json.dumps(FORMAT))
    while not so_far.ended:
        records, so_far = await database.read(so_far.page)
        for record in records:
            console.out(json.dumps(record))
            exported = record.get("response") or record.get("conversation") or {}
            missing.discard(exported.get("id", ""))
    return _report_missing(missing)


async def import_files(database: Database, names: list[str], settings: Settings) -> int:
    records = list(_records(names))
    done = await database.write(lambda tx: import_records(tx, records), durable=True)
    skipped = f"; {done.skipped:,} exist already and stay as they are" if done.skipped else ""
    console.err(f"Imported {done.responses:,} responses and {done.conversations:,} conversations{skipped}.")
    return 0


async def delete(database: Database, names: list[str], settings: Settings) -> int:
    if not names:
        raise CommandLineError("Name what to delete: gpt-oss-server store delete resp_…")

    def deletes(tx: Transaction, name: str) -> bool:
        return delete_response(tx, key_of(name)) or delete_conversation(tx, key_of(name))

    def work(tx: Transaction) -> set[str]:
        return {name for name in names if not deletes(tx, name)}

    return _report_missing(await database.write(work))


Action = Callable[[Database, list[str], Settings], Coroutine[Any, Any, int]]
_ACTIONS: dict[str, Action] = {
    "stat": stat,
    "vacuum": vacuum,
    "export": export,
    "import": import_files,
    "delete": delete,
}


def _records(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names or ["-"]:
        for number, line in enumerate(console.read_input(name).splitlines(), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise SettingsError(f"{name}, line {number} is no JSON: {error}.") from error
            if not isinstance(record, dict):
                raise SettingsError(f"{name}, line {number} is no record of a store.")
            yield record


def _takes_nothing(action: str, names: list[str]) -> None:
    if names:
        raise CommandLineError(f"store {action} concerns the whole store: leave {' '.join(names)} out.")


def _report_missing(missing: set[str]) -> int:
    for name in sorted(missing):
        console.err(f"The store has no response or conversation {name!r}.")
    return 1 if missing else 0


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count} bytes"
