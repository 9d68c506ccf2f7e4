"""Look at a store, shrink it or delete from it. It may be in use by a server meanwhile."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from gpt_oss_server.stores.sql.database import Database, Transaction

EXAMPLES = """\
examples:
  gpt-oss-server store stat --store sqlite
  gpt-oss-server store stat --config server.toml
  gpt-oss-server store vacuum --store sqlite:server.sqlite --store-max-age 7d
  gpt-oss-server store delete resp_123 --store sqlite

stat shows what the store holds. vacuum deletes what exceeds the bounds and returns the space to the disk."""

SETTINGS = (
    "store",
    "store_max_responses",
    "store_max_conversations",
    "store_max_bytes",
    "store_max_age",
    "store_max_conversation_age",
    "background_log_max_bytes",
    "background_log_max_age",
    "trace_max_bytes",
)


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("names", nargs="*", default=[], metavar="ID", help="what to delete")
    add_flags(parser, only=SETTINGS, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    return asyncio.run(_act(args.action, args.names, settings))


async def _act(action: str, names: list[str], settings: Settings) -> int:
    from gpt_oss_server.stores.kinds.table import open_database

    if names and action != "delete":
        raise CommandLineError(f"store {action} concerns the whole store: leave {' '.join(names)} out.")
    database = open_database(settings.store)
    try:
        return await _ACTIONS[action](database, names, settings)
    finally:
        await database.close()


async def _stat(database: Database, names: list[str], settings: Settings) -> int:
    from gpt_oss_server.stores.sql.sizes import statistics

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


async def _vacuum(database: Database, names: list[str], settings: Settings) -> int:
    from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper

    deleted = await Sweeper(database, Bounds.from_settings(settings)).sweep()
    await asyncio.to_thread(database.compact)
    console.err(f"Deleted {deleted:,} entries that exceeded the bounds, and returned the unused space.")
    return 0


async def _delete(database: Database, names: list[str], settings: Settings) -> int:
    from gpt_oss_server.stores.sql.codec import key_of
    from gpt_oss_server.stores.sql.conversations import delete_conversation
    from gpt_oss_server.stores.sql.responses import delete_response

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


_ACTIONS: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {
    "stat": _stat,
    "vacuum": _vacuum,
    "delete": _delete,
}


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count} bytes"
