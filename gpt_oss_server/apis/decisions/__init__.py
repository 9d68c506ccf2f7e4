"""Decisions: predicates, choices and scores about an input that is read once."""
