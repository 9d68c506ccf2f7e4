"""The APIs: one folder each, with a reader of its requests, a writer of its answers, and its routes."""
