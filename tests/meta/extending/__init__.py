"""The tests of what docs/extending.md adds. `test_extending` runs them in a copy."""
