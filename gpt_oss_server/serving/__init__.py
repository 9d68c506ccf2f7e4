"""What one server process shares between its APIs: the engine, the tools, the counters, the model list.

An engine and settings come in, `Served` goes out, which every API's service stands on. It must not know any
API.
"""
