"""Grammars written down for engines of other programs, which take no masks from this server.

Takes the shape of a turn, as `constraints.grammar` has it, and a notation of `inference.grammar`. Returns a
text that the engine's own reader of grammars takes: the whole grammar, or what is left of it after tokens
that were already sampled. What no notation can express is left free here, and checked after the turn.
`nodes` is a grammar as a tree, which `turn` and `json_value` make, `rest` follows tokens through and
`notation` writes. It must not know requests, engines or HTTP.
"""
