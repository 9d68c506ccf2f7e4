"""The vector stores API: files that are read in the background, and searches of their passages."""
