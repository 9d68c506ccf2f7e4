"""Converts bodies of pages to text: HTML, Markdown, PDF and plain text, with their links.

Takes bytes with a type and returns a `Document`. It must not know where the bytes came from, or cursors.
"""
