"""Traces: everything that is known of a response, down to its tokens, as the JSON document of docs/traces.md.

Nothing here runs while a response is generated: tokens are decoded again when a reader wants them. It must
not know HTTP or engines.
"""
