"""Helpers for tests of running a server."""
