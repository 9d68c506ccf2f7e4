"""The parts that the APIs of one server process share: engine, tools, counters, model list.

Takes an engine and settings. Returns `Served`, which every API's service holds. It must not know any API.
"""
