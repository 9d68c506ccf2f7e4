-- One turn of a history: what it adds to its parent. `holders` counts its owner and its children.
CREATE TABLE links (
    position {serial},
    parent BIGINT,
    holders BIGINT NOT NULL,
    size BIGINT NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX links_with_size ON links (position, size);
CREATE INDEX links_without_holder ON links (position) WHERE holders = 0;

-- `body` is the JSON of the response, its input items and the results of its calls.
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    position BIGINT NOT NULL UNIQUE,
    stored_at {real} NOT NULL,
    session {bytes} NOT NULL,
    size BIGINT NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX responses_by_age ON responses (stored_at, size);

CREATE TABLE conversations (
    id TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    changed_at {real} NOT NULL,
    version BIGINT NOT NULL,
    tip BIGINT,
    size BIGINT NOT NULL,
    metadata {bytes} NOT NULL
);
CREATE INDEX conversations_by_age ON conversations (changed_at, size);

-- Items that were added to a conversation together; `position` is the link of their segments.
CREATE TABLE parts (
    position BIGINT PRIMARY KEY,
    conversation TEXT NOT NULL,
    items {bytes} NOT NULL
);
CREATE INDEX parts_of_conversation ON parts (conversation, position);

-- Where an item is: the position of its response or part. The greatest position is the newest.
CREATE TABLE items (
    id TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (id, position)
);
CREATE INDEX items_by_position ON items (position);

-- A background run. `fence` counts its claims: only the holder of the last one may write.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    begun_at {real} NOT NULL,
    ended_at {real},
    replica TEXT NOT NULL,
    lease_until {real} NOT NULL,
    fence BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    cancel BIGINT NOT NULL,
    next_event BIGINT NOT NULL,
    next_record BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    parent BIGINT,
    request {bytes}
);
CREATE INDEX runs_unended ON runs (lease_until) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE events (
    run TEXT NOT NULL,
    first BIGINT NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (run, first)
);

-- What a run took from outside, in order: sampled tokens, results of tools. Enough to continue it elsewhere.
CREATE TABLE records (
    run TEXT NOT NULL,
    first BIGINT NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (run, first)
);

CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    secret {bytes} NOT NULL
);

-- Chat completions that clients asked to store, with the messages of their requests.
CREATE TABLE completions (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    stored_at {real} NOT NULL,
    size BIGINT NOT NULL,
    body {bytes} NOT NULL,
    messages {bytes} NOT NULL
);
CREATE INDEX completions_by_age ON completions (stored_at, size);
