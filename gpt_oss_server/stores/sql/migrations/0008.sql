-- Vectors of passages, of some of a file in each row. `space` names the model that made them, with their length.
CREATE TABLE vectors (
    position {serial},
    store BIGINT NOT NULL,
    entry BIGINT NOT NULL,
    space TEXT NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX vectors_of_store ON vectors (store, space, position);
CREATE INDEX vectors_of_entry ON vectors (entry);

-- A file that was read waits for vectors while its `space` is another than the server's.
ALTER TABLE entries ADD COLUMN is_read BIGINT NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN space TEXT NOT NULL DEFAULT '';
CREATE INDEX entries_by_space ON entries (space, status);
