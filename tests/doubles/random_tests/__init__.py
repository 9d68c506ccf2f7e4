"""Helpers of tests that draw at random."""
