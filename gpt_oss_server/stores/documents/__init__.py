"""Files and vector stores in a database, as `stores/files` and `stores/vector_stores` state.

Takes records, bytes and passages. Returns them, and the passages that words find. It must not know an API,
nor how a file becomes text.
"""
