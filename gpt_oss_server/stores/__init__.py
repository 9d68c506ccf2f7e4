"""What the server keeps between requests: responses, conversations, event logs, and the key that seals items.

Records come in and are found again by their ids. `base` and `events` are the contracts, tested by
`tests/contracts/`; `kinds` opens the store that `--store` names. A store must not know how a record was made.
"""
