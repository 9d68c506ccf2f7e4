"""The browser's way to the public web.

Addresses that a model or a page chose come in, bodies go out. Every address is checked before a connection is
made to it. It must not know the formats of pages.
"""
