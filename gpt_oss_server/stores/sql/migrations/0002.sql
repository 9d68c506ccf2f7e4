-- To whom each record belongs: the name of a key's owner, or '' on a server without keys.
ALTER TABLE responses ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE items ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE completions ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT '';

-- Clients choose the ids of items, so that one owner's may be any other's.
CREATE INDEX items_of_owner ON items (id, owner, position);
CREATE INDEX responses_of_owner ON responses (owner, position, size);
CREATE INDEX conversations_of_owner ON conversations (owner, id, size);
CREATE INDEX completions_of_owner ON completions (owner, position, size);
CREATE INDEX runs_of_owner ON runs (owner) WHERE ended_at IS NULL;

-- What is left of a limit per minute, at a time; it grows again from then on.
CREATE TABLE allowances (
    name TEXT PRIMARY KEY,
    amount {real} NOT NULL,
    counted_at {real} NOT NULL
);
