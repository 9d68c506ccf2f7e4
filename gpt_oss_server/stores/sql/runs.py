"""Background runs in tables: leases, event logs, records to continue from. The statements of a transaction.

A run belongs to the process that claimed it last. Each claim raises the run's fence, and a write with an
older fence changes nothing. Each append extends the lease, so that a run whose process has died, hangs or is
cut off becomes free.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_oss_server.stores.events import (
    Claimed,
    Continuation,
    LeaseLost,
    Records,
    TooManyRuns,
    events_forgotten,
)
from gpt_oss_server.stores.sql.allowances import lock_allowance
from gpt_oss_server.stores.sql.codec import key_of, pack, unpack
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.links import hold, link_number, release

ALL = 2**31  # batches: more than any log has
FREE = "ended_at IS NULL AND request IS NOT NULL AND lease_until <= {now} AND replica <> ?"


def begin_run(
    tx: Transaction,
    run_id: str,
    owner: str,
    continuation: Continuation | None,
    most: int | None,
    replica: str,
    lease: float,
) -> int:
    """Adds a run that this process holds, and returns its fence. Raises `TooManyRuns`."""
    if most is not None:
        lock_allowance(tx, f"runs of {owner}")  # other servers that begin a run of this owner wait here
        sql = "SELECT COUNT(*) FROM runs WHERE owner = ? AND ended_at IS NULL"
        if tx.rows(sql, owner)[0][0] >= most:
            raise TooManyRuns(most)
    request = None if continuation is None else continuation.request
    parent = None if continuation is None else link_number(continuation.parent)
    hold(tx, parent)
    sql = (
        "INSERT INTO runs (id, begun_at, ended_at, replica, lease_until, fence, attempts, cancel, next_event,"
        " next_record, bytes, parent, request, owner)"
        " VALUES (?, {now}, NULL, ?, {now} + ?, 1, 1, 0, 0, 0, 0, ?, ?, ?)"
    )
    tx.run(sql, key_of(run_id), replica, lease, parent, request, owner)
    return 1


def append_batch(
    tx: Transaction, run_id: str, fence: int, lease: float, sent: Records, recorded: Records
) -> bool:
    """Adds what the log does not have yet, and returns whether to cancel the run."""
    key = key_of(run_id)
    sql = (
        "UPDATE runs SET lease_until = {now} + ? WHERE id = ? AND fence = ? AND ended_at IS NULL"
        " RETURNING cancel, next_event, next_record"
    )
    if not (rows := tx.rows(sql, lease, key, fence)):
        raise LeaseLost(run_id)
    [[cancel, next_event, next_record]] = rows
    events = _new(sent, next_event, "Event")
    records = _new(recorded, next_record, "Record")
    if not events and not records:
        return bool(cancel)
    size = 0
    for table, first, added in (("events", next_event, events), ("records", next_record, records)):
        if added:
            body = pack(added)
            size += len(body)
            tx.run(f"INSERT INTO {table} (run, first, body) VALUES (?, ?, ?)", key, first, body)
    sql = "UPDATE runs SET next_event = ?, next_record = ?, bytes = bytes + ? WHERE id = ?"
    tx.run(sql, next_event + len(events), next_record + len(records), size, key)
    return bool(cancel)


def end_run(tx: Transaction, run_id: str, fence: int) -> None:
    """Ends the log. Its records are no longer needed."""
    key = key_of(run_id)
    sql = "UPDATE runs SET ended_at = {now}, request = NULL WHERE id = ? AND fence = ? AND ended_at IS NULL"
    for [parent] in tx.rows(f"{sql} RETURNING parent", key, fence):
        tx.run("DELETE FROM records WHERE run = ?", key)
        if parent is not None:
            tx.run("UPDATE runs SET parent = NULL WHERE id = ?", key)
            release(tx, parent)


def delete_ended(tx: Transaction, key: str, owner: str | None = None) -> bool:
    """Deletes the log of a run of this owner that has ended; without an owner, of any."""
    sql = "DELETE FROM runs WHERE id = ? AND owner = COALESCE(?, owner) AND ended_at IS NOT NULL"
    if not tx.run(sql, key, owner):
        return False
    tx.run("DELETE FROM events WHERE run = ?", key)
    return True


def forget_beginnings(tx: Transaction, most: int) -> None:
    """Lets the largest logs of running runs forget the first half of their batches, down to `most` bytes."""
    largest = "SELECT id, bytes FROM runs WHERE ended_at IS NULL ORDER BY bytes DESC LIMIT 1"
    while tx.rows("SELECT COALESCE(SUM(bytes), 0) FROM runs")[0][0] > most and (rows := tx.rows(largest)):
        [[key, size]] = rows
        batches = tx.rows("SELECT first, length(body) FROM events WHERE run = ? ORDER BY first", key)
        forgotten = batches[: len(batches) // 2]
        if not forgotten:
            return  # a single batch is larger than all may be
        tx.run("DELETE FROM events WHERE run = ? AND first <= ?", key, forgotten[-1][0])
        left = size - sum(length for _, length in forgotten)
        tx.run("UPDATE runs SET bytes = ? WHERE id = ?", left, key)


# --- which process runs what ------------------------------------------------------------------------


def claim_run(tx: Transaction, replica: str, lease: float) -> tuple[Claimed, int] | None:
    """A run that no process holds, with its new fence."""
    sql = f"SELECT id FROM runs WHERE {FREE} ORDER BY lease_until LIMIT 1 {{skip_locked}}"
    if not (rows := tx.rows(sql, replica)):
        return None
    [[key]] = rows
    sql = (
        "UPDATE runs SET replica = ?, lease_until = {now} + ?, fence = fence + 1, attempts = attempts + 1"
        " WHERE id = ? RETURNING fence, request, next_event, attempts, cancel, owner"
    )
    [[fence, request, next_event, attempts, cancel, owner]] = tx.rows(sql, replica, lease, key)
    batches = tx.rows("SELECT body FROM records WHERE run = ? ORDER BY first", key)
    records = tuple(record for [body] in batches for record in unpack(body))
    run = Claimed(key, request, records, int(next_event), int(attempts), bool(cancel), owner)
    return run, int(fence)


def give_back(tx: Transaction, run_id: str, fence: int) -> None:
    """Frees a run; that its process ends in order is no failed attempt."""
    sql = "UPDATE runs SET replica = '', lease_until = 0, attempts = attempts - 1 WHERE id = ? AND fence = ?"
    tx.run(sql, key_of(run_id), fence)


def end_abandoned(tx: Transaction) -> int:
    """Ends the logs of runs that no process holds or can continue."""
    ended = "ended_at IS NULL AND request IS NULL AND lease_until <= {now}"
    return tx.run(f"UPDATE runs SET ended_at = {{now}} WHERE {ended}")


def holders(tx: Transaction) -> list[str]:
    """The processes that hold runs."""
    rows = tx.rows("SELECT DISTINCT replica FROM runs WHERE ended_at IS NULL AND lease_until > 0")
    return [replica for [replica] in rows if replica]


# --- event logs, for readers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogState:
    ended: bool
    next_event: int


def log_state(tx: Transaction, run_id: str, owner: str) -> LogState | None:
    sql = "SELECT ended_at, next_event FROM runs WHERE id = ? AND owner = ?"
    rows = tx.rows(sql, key_of(run_id), owner)
    return LogState(rows[0][0] is not None, int(rows[0][1])) if rows else None


def read_events(tx: Transaction, run_id: str, after: int, most: int = 64) -> list[bytes]:
    """Events from number `after` + 1 on: those of at most `most` batches. Raises `EventsForgotten`."""
    key = key_of(run_id)
    sql = (
        "SELECT first, body FROM events WHERE run = ? AND first >="
        " (SELECT COALESCE(MAX(first), 0) FROM events WHERE run = ? AND first <= ?) ORDER BY first LIMIT ?"
    )
    wanted: list[bytes] = []
    rows = tx.rows(sql, key, key, after + 1, most)
    if rows and rows[0][0] > after + 1:
        raise events_forgotten(rows[0][0])
    for first, body in rows:
        wanted += unpack(body)[max(0, after + 1 - first) :]
    return wanted


def _new(sent: Records, known: int, name: str) -> Sequence[bytes]:
    if sent.added and sent.first > known:
        raise ValueError(f"{name} {sent.first} is too early: {sent.first - known} before it are missing.")
    return sent.added[known - sent.first :] if sent.added else ()
