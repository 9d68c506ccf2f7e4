"""The stores that end with their process: SQLite in memory, and those of a WebSocket.

Takes and returns records, as `stores/base` states. It must not know other processes.
"""

from gpt_oss_server.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
