"""The rows of vector stores: deletion with all that belongs to them, attributes, and conditions on these."""

from dataclasses import asdict, replace
from typing import Any

from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Transaction, Value
from gpt_oss_server.stores.vector_stores import Attributes, Entry, Filter

ENTRY = "entries.body, entries.status, entries.size"

_SIGNS = {"eq": "=", "ne": "=", "in": "=", "nin": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def entry_of(body: bytes, status: str, size: int) -> Entry:
    """The entry of the columns `ENTRY`."""
    fields: dict[str, Any] = from_bytes(body)
    error = fields["error"]
    return Entry(**{**fields, "error": error and tuple(error), "status": status, "bytes": int(size)})


def change_entry(tx: Transaction, position: int, **fields: Any) -> None:
    """Changes the record of a file, as it is when nobody else changes it."""
    for row in tx.rows(f"UPDATE entries SET size = size WHERE position = ? RETURNING {ENTRY}", position):
        body = to_bytes(asdict(replace(entry_of(*row), **fields)))
        tx.run("UPDATE entries SET body = ? WHERE position = ?", body, position)


def delete_store(tx: Transaction, position: int) -> bool:
    """What is left of its files is swept."""
    tx.texts.drop(position)
    return bool(tx.run("DELETE FROM vector_stores WHERE position = ?", position))


def delete_entries(tx: Transaction, where: str, *values: Value) -> int:
    rows = tx.rows(f"SELECT store, position FROM entries WHERE {where}", *values)
    for store, position in rows:
        delete_passages(tx, store, position)
        tx.run("DELETE FROM attributes WHERE entry = ?", position)
        tx.run("DELETE FROM entries WHERE position = ?", position)
    return len(rows)


def delete_passages(tx: Transaction, store: int, entry: int) -> None:
    passages = [position for [position] in tx.rows("SELECT position FROM passages WHERE entry = ?", entry)]
    if passages and tx.rows("SELECT 1 FROM vector_stores WHERE position = ?", store):
        tx.texts.remove(store, passages)
    for table in ("passages", "vectors"):
        tx.run(f"DELETE FROM {table} WHERE entry = ?", entry)


def set_attributes(tx: Transaction, entry: int, attributes: Attributes) -> None:
    rows = [(entry, key_of(name), *_stored(value)) for name, value in attributes.items()]
    tx.run_each("INSERT INTO attributes (entry, name, text, number) VALUES (?, ?, ?, ?)", rows)


def _stored(value: str | float | bool) -> tuple[str | None, float | None]:
    if isinstance(value, bool):
        return f"\\{value}", None  # no text is stored like this
    return (key_of(value), None) if isinstance(value, str) else (None, float(value))


def condition(filters: Filter) -> tuple[str, list[Value]]:
    """The filter in SQL, for a row of `entries`."""
    values: list[Value] = []
    if filters.kind in ("and", "or"):
        parts = [condition(part) for part in filters.parts]
        values = [value for _, of_part in parts for value in of_part]
        return "(" + f" {filters.kind.upper()} ".join(sql for sql, _ in parts) + ")", values
    options = []
    for wanted in filters.values:
        text, number = _stored(wanted)
        options.append(f"{'number' if text is None else 'text'} {_SIGNS[filters.kind]} ?")
        values.append(number if text is None else text)
    sql = (
        "EXISTS (SELECT 1 FROM attributes WHERE attributes.entry = entries.position AND name = ?"
        f" AND ({' OR '.join(options)}))"
    )
    return f"NOT {sql}" if filters.kind in ("ne", "nin") else sql, [key_of(filters.key), *values]
