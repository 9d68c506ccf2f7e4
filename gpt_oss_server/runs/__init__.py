"""Runs: the server's execution of one request, the same for every API.

Takes a request that is prepared. Drives its turns, counts, observes, keeps and ends it. It must not know an
API.
"""
