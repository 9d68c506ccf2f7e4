"""Constraints on a turn: grammars for the engine, and checks of what it generated.

Takes a required form (JSON schema, regex, grammar, calls). Returns a grammar that masks tokens, or a check of
the finished turn; a form that cannot be enforced is a 400. It must not know which API requires the form.
"""
