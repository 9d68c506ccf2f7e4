-- Until when a reader in another process wants to hear of each event.
ALTER TABLE runs ADD COLUMN watched_until {real} NOT NULL DEFAULT 0;

-- What a trace is made of, compressed. A trace goes with its response.
CREATE TABLE traces (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    size BIGINT NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX traces_with_size ON traces (position, size);
