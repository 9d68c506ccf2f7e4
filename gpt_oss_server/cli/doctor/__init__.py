"""What works on this machine, and what to do about the rest: each check does the real thing.

Takes settings. Returns findings, each a sentence with what to do about it. It must not know how they
are shown.
"""
