"""The stores that end with their process: SQLite in memory, event logs in Python, and those of a WebSocket.

Takes and returns records, as `stores/base` and `stores/events` state. It must not know other processes.
"""

from gpt_oss_server.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
