"""Traces for OpenTelemetry: a span for each request, each turn, each generation and each run of a tool.

Takes what runs and HTTP report. Sends spans by the GenAI conventions to the operator's collector, if there is
one; otherwise nothing here is imported. A span has ids, names, counts and times, and never a text of a
client, of the model or of a tool.
"""
