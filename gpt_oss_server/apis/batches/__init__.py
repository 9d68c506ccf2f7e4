"""The batches API: files of requests that are answered when nothing else waits, each exactly once."""
