"""HTTP without any API: bodies, errors of form, server-sent events, keep-alive, paging, origins.

Requests and batches of events come in; decoded bodies, 400s and bytes go out. It must not know an endpoint, a
model or Harmony.
"""
