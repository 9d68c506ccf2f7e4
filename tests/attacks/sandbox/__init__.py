"""Attacks on the python tool's sandbox and on the browser's pages, with the limits that servers have.

Each is bounded by itself: what it would take if nothing stopped it is far below what a machine has.
"""
