"""The commands of `gpt-oss-server`, one file each, and what several of them share.

Parsed arguments and settings come in, an exit code goes out. Each command loads what it needs when it runs.
No command knows another.
"""
