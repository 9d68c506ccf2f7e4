"""The sandboxes that python runs in: bubblewrap, Docker, or none.

Limits and a folder come in, a running process with its channels goes out. `sandbox` is the contract. It must
not know kernels, cells or conversations.
"""
