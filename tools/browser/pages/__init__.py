"""Bodies of pages as text: HTML, Markdown, PDF and plain text, with their links.

Bytes with a type come in, a `Document` goes out. It must not know where the bytes came from, and it knows no
cursor.
"""
