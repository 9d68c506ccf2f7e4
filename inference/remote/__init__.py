"""Engines of other programs, over HTTP: prompts go out as token ids, sampled token ids come in.

Takes an address and the wire that its server speaks. Returns an `Engine`. It knows token ids and HTTP,
nothing of Harmony or of this server. `engine` is what all remote engines share; wires are in `backends`.
"""
