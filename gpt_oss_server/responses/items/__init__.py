"""Output items: what the model generates, as items and their events.

Turn events come in, items with their events go out. It must not know output indices, sequence numbers or the
response around an item; the stream adds these.
"""
