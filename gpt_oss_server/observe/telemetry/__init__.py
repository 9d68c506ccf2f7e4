"""OpenTelemetry: spans of requests, turns, generations and runs of tools, and metrics of turns and tools.

They go by the GenAI conventions to the operator's collector, if there is one, and have ids, names, counts and
times, and never a text of a client, of the model or of a tool.
"""
