"""Stores: responses, conversations and event logs that outlive a request, and the key that seals items.

Takes records and returns them by id. `base` and `events` are the contracts, tested by `tests/contracts/`;
`kinds` opens the store that `--store` names. A store must not know how a record was created.
"""
