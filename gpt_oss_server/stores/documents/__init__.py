"""Files and vector stores in a database.

Takes records, bytes and passages. Returns them, and the passages that words find. It must not know an API,
nor how a file becomes text.
"""
