-- Batches of requests. A batch that has not ended belongs to the process that claimed it last, while its lease lasts;
-- each claim raises the fence. `body` is the JSON of the API's object, `caller` that of who sends the requests.
CREATE TABLE batches (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    is_open BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    lease_until {real} NOT NULL,
    body {bytes} NOT NULL,
    caller {bytes} NOT NULL
);
CREATE INDEX batches_of_owner ON batches (owner, position);
CREATE INDEX batches_open ON batches (lease_until) WHERE is_open = 1;

-- The answers of a batch that has not ended, by the number of their line.
CREATE TABLE batch_answers (
    batch TEXT NOT NULL,
    number BIGINT NOT NULL,
    succeeded BIGINT NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (batch, number)
);

-- Events that addresses of the operator are told: one row for each address, and before the addresses are known, one
-- with none. `due_at` is when the event is sent, or sent again.
CREATE TABLE deliveries (
    id TEXT NOT NULL,
    url TEXT NOT NULL,
    owner TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    due_at {real} NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (id, url)
);
CREATE INDEX deliveries_due ON deliveries (due_at);
