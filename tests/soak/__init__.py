"""A server under moderate load for a long time: its memory, its descriptors and its slots must not change."""
