"""The tools that this server runs itself: one file and one line in `table` for each.

A tool's file holds everything that the server knows about it: how requests name it, how settings enable it,
how the model calls it and how responses show its calls. All other rooms read the table. It must not know how
a tool works, nor which API a request uses.
"""
