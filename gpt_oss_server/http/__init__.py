"""The HTTP that all APIs share: bodies, validation errors, server-sent events, keep-alive, paging, origins.

Takes requests and batches of events; returns decoded bodies, 400s and bytes. It must not know an endpoint, a
model or Harmony.
"""
