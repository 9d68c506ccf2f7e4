"""Attacks on a server of its own process, whose health is probed meanwhile: `make attacks`."""
