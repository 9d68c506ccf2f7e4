"""What the server keeps between requests: responses, conversations, and the key that seals items.

Records come in and are found again by their ids. A store must not know how a record was made; its contract is
tested by `tests/contracts/store_contract.py`.
"""
