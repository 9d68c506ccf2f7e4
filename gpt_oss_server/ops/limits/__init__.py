"""Limits: how many requests and tokens a key, and all clients together, may use.

Takes requests before they run, the tokens that they may need and those that they used. Refuses what exceeds a
limit with the time after which it fits, and reports what is left in each answer's headers. It must not know
an API, nor where allowances are kept.
"""
