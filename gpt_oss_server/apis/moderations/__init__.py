"""Moderations: what a text has of OpenAI's categories, as the operator's model and policy see it."""
