"""Who asks: the keys of a server, what each may do, and how much.

Takes a key. Returns its `Access`, admits its requests within their limits, and keeps the record that the log
writes of each request. It must not know HTTP, nor an API.
"""
