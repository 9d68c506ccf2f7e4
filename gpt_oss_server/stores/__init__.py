"""Stores: responses, conversations and event logs that outlive a request, and the key that seals items.

Takes records and returns them by id. `base` is the contract of responses; `tests/contracts/` tests
all. `kinds` opens the store that `--store` names. A store must not know how a record was created.
"""
