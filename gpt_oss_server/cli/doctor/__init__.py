"""What works on this machine, and what to do about the rest: each check does the real thing.

It must not know how its findings are shown.
"""
