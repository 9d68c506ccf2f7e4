"""OpenTelemetry: spans of requests, turns, generations and runs of tools, and metrics of turns and tools.

Takes what runs, tools and HTTP report. Sends both by the GenAI conventions to the operator's collector, if
there is one; otherwise nothing here is imported. They have ids, names, counts and times, and never a text of
a client, of the model or of a tool.
"""
