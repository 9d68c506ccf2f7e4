-- Vector stores. What has expired is not found and is swept.
CREATE TABLE vector_stores (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    expires_at {real},
    body {bytes} NOT NULL
);
CREATE INDEX vector_stores_of_owner ON vector_stores (owner, position);

-- The files of vector stores. A process that reads one holds it until `lease_until`; `fence` counts the claims, and only
-- the holder of the last one may write. `passages` and `words` are counts.
CREATE TABLE entries (
    position {serial},
    store BIGINT NOT NULL,
    file TEXT NOT NULL,
    batch TEXT NOT NULL,
    status TEXT NOT NULL,
    size BIGINT NOT NULL,
    passages BIGINT NOT NULL,
    words BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    lease_until {real} NOT NULL,
    body {bytes} NOT NULL,
    UNIQUE (store, file)
);
CREATE INDEX entries_of_store ON entries (store, position, status, size, passages, words);
CREATE INDEX entries_of_file ON entries (file);
CREATE INDEX entries_to_read ON entries (position) WHERE status = 'in_progress';

-- A text in `text`, or a number in `number`.
CREATE TABLE attributes (
    entry BIGINT NOT NULL,
    name TEXT NOT NULL,
    text TEXT,
    number {real},
    PRIMARY KEY (entry, name)
);

-- Parts of the text of a file, which overlap; `start` counts characters from the beginning.
CREATE TABLE passages (
    position {serial},
    entry BIGINT NOT NULL,
    start BIGINT NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX passages_of_entry ON passages (entry, start);

-- How often a passage has a word, where the database has no full-text index that ranks by BM25.
CREATE TABLE postings (
    store BIGINT NOT NULL,
    word TEXT NOT NULL,
    passage BIGINT NOT NULL,
    count BIGINT NOT NULL,
    length BIGINT NOT NULL,
    PRIMARY KEY (store, word, passage)
);
CREATE INDEX postings_of_passage ON postings (passage);
