"""Runs that outlive their connection, and perhaps their process.

Takes runs, as batches of events, and what they took from outside. Drives them to their end, logs both, and
lets a run that is built again repeat what it did. It must not know what the events contain, nor HTTP.
"""
