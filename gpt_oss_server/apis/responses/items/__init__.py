"""Output items: turns the model's output into items and their events.

Takes turn events and returns items with their events. It must not know output indices, sequence numbers or
the response around an item; the stream adds these.
"""
