"""What one server process shares between its APIs: the engine, the tools, the counters, the model list.

An engine and settings come in; `Served`, which every API's service holds, goes out. It must not know any API.
"""
