"""Decisions: the real model, the official SDK, and each probability beside its own prompt's score."""
