-- Files, uploads and their parts. `kind` is 'file', 'upload', 'part', or 'begun' while the content still arrives;
-- what is not a file yet always expires. `body` is the JSON of the record.
CREATE TABLE files (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    upload TEXT NOT NULL,
    purpose TEXT NOT NULL,
    size BIGINT NOT NULL,
    expires_at {real},
    body {bytes} NOT NULL
);
CREATE INDEX files_of_owner ON files (owner, position, size);
CREATE INDEX files_expiring ON files (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX parts_of_upload ON files (upload, position) WHERE upload <> '';

-- The bytes of files, in pieces of the same size. None where the server keeps them in a folder.
CREATE TABLE pieces (
    file TEXT NOT NULL,
    number BIGINT NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (file, number)
);
