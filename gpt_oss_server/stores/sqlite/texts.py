"""The index of the passages of a store: a table of FTS5 for each store, so that its BM25 counts no others."""

import sqlite3
from collections.abc import Iterable, Sequence

from gpt_oss_server.stores.sql.database import Value

# The words are made by `tools/words`: FTS5 only separates them at spaces.
_TOKENIZE = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"


class SqliteTexts:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def create(self, store: int) -> None:
        self._connection.execute(
            f'CREATE VIRTUAL TABLE text_{store} USING fts5(words, tokenize="{_TOKENIZE}")'
        )

    def add(self, store: int, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        rows = ((passage, " ".join(words)) for passage, words in passages)
        self._connection.executemany(f"INSERT INTO text_{store} (rowid, words) VALUES (?, ?)", rows)

    def remove(self, store: int, passages: Iterable[int]) -> None:
        rows = ((passage,) for passage in passages)
        self._connection.executemany(f"DELETE FROM text_{store} WHERE rowid = ?", rows)

    def drop(self, store: int) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS text_{store}")

    def search(
        self, store: int, words: Sequence[str], among: str, values: Sequence[Value], most: int
    ) -> list[tuple[int, float]]:
        wanted = " OR ".join(f'"{word}"' for word in words)
        sql = (
            f"SELECT rowid, -rank FROM text_{store} WHERE text_{store} MATCH ?"
            f"{f' AND rowid IN ({among})' if among else ''} ORDER BY rank, rowid LIMIT ?"
        )
        return self._connection.execute(sql, (wanted, *values, most)).fetchall()
