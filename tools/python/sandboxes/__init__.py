"""The sandboxes for the python tool: bubblewrap, Docker, or none.

Takes limits and a folder, returns a running process with its channels. `sandbox` is the contract. It must not
know kernels, cells or conversations.
"""
