"""Helpers of tests: engines, servers, clients and tools whose behaviour the test decides."""
