"""Grammars written down for engines of other programs, which take no masks from this server.

Takes a grammar as a tree of nodes (`nodes`). Returns a text that the engine's own reader of grammars takes
(`notation`): the whole grammar, or what is left of it after tokens that were sampled before (`rest`). It must
not know turns, schemas, engines or HTTP.
"""
