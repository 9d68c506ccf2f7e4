"""The browser's access to the public web.

Takes addresses that a model or a page chose, and returns bodies. Every address is checked before a connection
to it. It must not know the formats of pages.
"""
