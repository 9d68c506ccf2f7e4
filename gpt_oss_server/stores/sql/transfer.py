"""Exports a store as lines of JSON and imports them, into this or any other database.

The records are links, each after its parent, then what refers to them. An import gives the links new
positions, so that the same conversations continue on another machine.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.base import StoredConversation, StoredResponse
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.sql.codec import decode_addition, encode_addition, from_bytes, key_of
from gpt_oss_server.stores.sql.conversations import end_at, insert_conversation, insert_part
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.responses import EncodedResponse, insert_response

FORMAT = {"format": "gpt-oss-server store", "version": 1}
_PAGE = 100
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported so far."""

    ids: frozenset[str] = frozenset()  # keys of responses and conversations; empty: all
    links: frozenset[int] = frozenset()
    response: int = 0  # the position of the last one
    conversation: str = ""  # the key of the last one
    ended: bool = False

    def page(self, tx: Transaction) -> tuple[list[Record], Export]:
        """The next records, perhaps none, and the export after them."""
        sql = (
            "SELECT responses.id, responses.position, stored_at, session, responses.body, owner, traces.body"
            " FROM responses LEFT JOIN traces ON traces.id = responses.id WHERE responses.position > ?"
            " ORDER BY responses.position LIMIT ?"
        )
        if not (rows := tx.rows(sql, self.response, _PAGE)):
            return self._conversations(tx)
        links, records = set(self.links), []
        for key, position, stored_at, session, body, owner, trace in rows:
            if self._wants(key):
                response = _response(position, stored_at, session, body, owner)
                if trace is not None:
                    response["trace"] = b64encode(trace).decode("ascii")
                records += [*_new_links(tx, position, links), response]
        return records, replace(self, links=frozenset(links), response=rows[-1][1])

    def _conversations(self, tx: Transaction) -> tuple[list[Record], Export]:
        links: set[int] = set(self.links)
        records: list[Record] = []
        columns = "id, created_at, changed_at, version, tip, metadata, owner"
        sql = f"SELECT {columns} FROM conversations WHERE id > ? ORDER BY id LIMIT ?"
        rows = tx.rows(sql, self.conversation, _PAGE)
        for key, created_at, changed_at, version, tip, metadata, owner in rows:
            if self._wants(key):
                records += _new_links(tx, tip, links)
                named = {"id": key, "created_at": created_at, "metadata": from_bytes(metadata)}
                records.append(_conversation(tx, {**named, "version": version, "owner": owner}, changed_at))
        last = rows[-1][0] if rows else self.conversation
        return records, replace(self, links=frozenset(links), conversation=last, ended=not rows)

    def _wants(self, key: str) -> bool:
        return not self.ids or key in self.ids


@dataclass(slots=True)
class Imported:
    responses: int = 0
    conversations: int = 0
    skipped: int = 0  # they exist already


def import_records(tx: Transaction, records: Iterable[Record]) -> Imported:
    """Raises `SettingsError` for records of another format. What exists already stays as it is."""
    positions: dict[int | None, int | None] = {None: None}
    done = Imported()
    for number, record in enumerate(records, 1):
        try:
            if "link" in record and "segments" in record:
                positions[record["link"]] = _add_link(tx, positions[record["parent"]], record)
            elif "response" in record:
                is_new = _add_response(tx, positions[record["link"]], record)
                done.responses += is_new
                done.skipped += not is_new
            elif "conversation" in record:
                is_new = _add_conversation(tx, positions, record)
                done.conversations += is_new
                done.skipped += not is_new
            elif record != FORMAT:
                raise SettingsError(f"Line {number} is of another format or version than this program's.")
        except SettingsError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingsError(f"Line {number} cannot be read: {type(error).__name__} {error}.") from error
    return done


def _new_links(tx: Transaction, position: int | None, exported: set[int]) -> Iterator[Record]:
    """The links of a chain that are not exported yet, the oldest first."""
    records: list[Record] = []
    while position is not None and position not in exported:
        [[parent, body]] = tx.rows("SELECT parent, body FROM links WHERE position = ?", position)
        records.append({"link": position, "parent": parent, **asdict(decode_addition(body))})
        exported.add(position)
        position = parent
    return reversed(records)


def _response(position: int, stored_at: float, session: bytes, body: bytes, owner: str) -> Record:
    content = dict(zip(("response", "input_items", "results"), from_bytes(body), strict=True))
    named = session.decode("utf-8", "surrogatepass")
    return {**content, "session": named, "stored_at": stored_at, "link": position, "owner": owner}


def _conversation(tx: Transaction, named: Record, changed_at: float) -> Record:
    sql = "SELECT position, items FROM parts WHERE conversation = ? ORDER BY position"
    parts = [{"link": position, "items": from_bytes(items)} for position, items in tx.rows(sql, named["id"])]
    return {"conversation": named, "changed_at": changed_at, "parts": parts}


def _add_link(tx: Transaction, parent: int | None, record: Record) -> int:
    """Adds a link that nothing holds yet. The sweeper deletes it if that remains so."""
    segments = [
        Segment(**{**fields, "tokens": tuple(fields["tokens"]), "tools": tuple(fields["tools"])})
        for fields in record["segments"]
    ]
    approvals = {key: (call[0], call[1]) for key, call in record["approvals"].items()}
    added = Addition(tuple(segments), record["recipients"], approvals, tuple(record["answered"]))
    body = encode_addition(added)
    sql = "INSERT INTO links (parent, holders, size, body) VALUES (?, 0, ?, ?) RETURNING position"
    [[position]] = tx.rows(sql, parent, len(body), body)
    _hold(tx, parent)
    return int(position)


def _add_response(tx: Transaction, position: int | None, record: Record) -> bool:
    assert position is not None
    encoded = EncodedResponse.of(
        StoredResponse(
            record["response"],
            tuple(record["input_items"]),
            session=record["session"],
            results=record["results"],
            trace=b64decode(record.get("trace", ""), validate=True),  # exports of earlier versions have none
        ),
        _owner(record),
    )
    is_new = insert_response(tx, encoded, position, float(record["stored_at"]))
    if is_new:
        _hold(tx, position)
    return is_new


def _add_conversation(tx: Transaction, positions: dict[int | None, int | None], record: Record) -> bool:
    fields, parts = record["conversation"], record["parts"]
    key, owner = key_of(fields["id"]), _owner(fields)
    new = StoredConversation(fields["id"], fields["created_at"], fields["metadata"], fields["version"], owner)
    if not insert_conversation(tx, new, float(record["changed_at"])):
        return False
    position = None
    for part in parts:
        position = positions[part["link"]]
        assert position is not None
        end_at(tx, key, position, insert_part(tx, key, owner, position, part["items"]))
    _hold(tx, position)
    return True


def _owner(record: Record) -> str:
    """Exports of servers that knew no owners have none."""
    owner = record.get("owner", "")
    if not isinstance(owner, str):
        raise TypeError("owner must be a text")
    return owner


def _hold(tx: Transaction, position: int | None) -> None:
    if position is not None:
        tx.run("UPDATE links SET holders = holders + 1 WHERE position = ?", position)
