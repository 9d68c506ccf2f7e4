"""Traces: everything that is known of a response, down to its tokens, as one JSON document.

Takes the record that a run leaves. Returns the document of docs/traces.md. Nothing here runs while a response
is generated: the tokens are decoded again when a reader wants them. It must not know HTTP or engines.
"""
