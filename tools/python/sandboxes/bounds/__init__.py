"""Holds boxes to their limits from outside: control groups, process numbers, and the watchdog.

Takes limits and the first process of a box. Ends a box that exceeds a limit, and states which. It must not
know how boxes start, kernels or conversations.
"""
